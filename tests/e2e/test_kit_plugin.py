"""K12: the kit as fixtures, in a project that has nothing but the distribution."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

# Wherever the distribution is installed, its entry point has loaded the plugin under this other name.
AS_A_PLUGIN = (
    "-p",
    "no:asyncio",
    "-p",
    "no:outbox_kernel",
    "-p",
    "outbox_kernel.pytest_plugin",
    "-p",
    "no:cacheprovider",
)

PROJECT = """
    import asyncio
    from uuid import UUID
    import pytest
    from outbox_kernel.errors import UnknownEventType
    from outbox_kernel.kernel import AggregateRoot, DomainEvent, aggregate, event
    from outbox_kernel.kernel.catalogue import newest_event_type
    from outbox_kernel.kernel.clock import now
    from outbox_kernel.kernel.testing import assert_recorded

    def define():
        @event("plugin.opened")
        class Opened(DomainEvent):
            owner: str
        return Opened

    def test_a_use_case(in_memory_uow, isolated_event_definitions):
        Opened = define()
        async def open_account(uow):
            async with uow:
                uow.emit(Opened("ada"))
                await uow.commit()
        asyncio.run(open_account(in_memory_uow))
        assert_recorded(in_memory_uow, Opened("ada"))

    def test_definitions_are_forgotten(in_memory_uow):
        assert in_memory_uow.store.events == ()
        with pytest.raises(UnknownEventType):
            newest_event_type("plugin.opened")

    def test_time_stands_still(frozen_clock):
        start = now()
        frozen_clock.advance(60)
        assert (now() - start).total_seconds() == 60
"""


def test_the_fixtures_serve_a_project(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PROJECT)
    pytester.runpytest_inprocess(*AS_A_PLUGIN).assert_outcomes(passed=3)


def test_the_fixtures_explain_themselves(pytester: pytest.Pytester) -> None:
    shown = pytester.runpytest_inprocess(*AS_A_PLUGIN, "--fixtures")
    shown.stdout.fnmatch_lines(
        [
            "in_memory_uow*",
            "*A unit of work in memory on a store of its own*",
            "frozen_clock*",
            "*A clock that stands still until*",
            "isolated_event_definitions*",
            "*are forgotten after it.*",
        ]
    )


def test_loading_the_plugin_does_not_import_the_kit() -> None:
    # A stand-in for pytest, which takes longer to import than all of the kernel.
    script = (
        "import sys, types; sys.modules['pytest'] = types.SimpleNamespace(fixture=lambda function: function)\n"
        "import outbox_kernel.pytest_plugin; print('outbox_kernel.kernel.testing' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    shown = subprocess.run(
        [sys.executable, "-c", script], cwd=root, check=True, capture_output=True, text=True
    )
    assert shown.stdout.strip() == "False"
