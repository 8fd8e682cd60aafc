"""The pytest plugin of the distribution: the testing kit's fixtures, if the `kernel` that is found is ours.

It is loaded into every pytest of its environment, so a project with a `kernel` of its own is left in peace: it
is told in the header, and only a test that asks for one of our fixtures fails.
"""

from __future__ import annotations

from typing import Any

import pytest

from outbox_kernel import shadowing_sentence

FIXTURES = ("in_memory_uow", "frozen_clock", "isolated_event_definitions")

_sentence = shadowing_sentence()

if _sentence is None:
    pytest_plugins = ("kernel.pytest_plugin",)
else:

    def _refusing(name: str, sentence: str) -> Any:
        @pytest.fixture(name=name)
        def refuse() -> None:
            """Not there, since another `kernel` hides outbox-kernel's."""
            pytest.fail(sentence, pytrace=False)

        return refuse

    globals().update({name: _refusing(name, _sentence) for name in FIXTURES})

    def pytest_report_header() -> str:
        """Say it once, above all tests."""
        return f"outbox-kernel: {_sentence}"
