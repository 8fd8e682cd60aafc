"""What dead letters died of comes back from an address and a form as it was (O3)."""

from __future__ import annotations

import pytest

from outbox_kernel.infrastructure.dashboard.kinds import kind_field, kind_of


def test_what_is_plain_is_written_so() -> None:
    assert kind_field("KeyError: *") == "KeyError: *"
    assert kind_of(None) is None


@pytest.mark.parametrize("typed", ['"', '"\\u0000"', '"half', '"a" b', '"\\ud800"'])
def test_what_somebody_typed_is_taken_as_it_is(typed: str) -> None:
    assert kind_of(typed) == typed
