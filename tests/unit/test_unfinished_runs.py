"""A run that nobody goes on with, its loop having ended, is closed by the garbage collector (R8)."""

from __future__ import annotations

from contextvars import Context
from types import SimpleNamespace, coroutine
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.relay.lease import Lease
from outbox_kernel.infrastructure.relay.log import Log
from outbox_kernel.infrastructure.relay.run import Handling, Run, run_handler
from outbox_kernel.infrastructure.relay.workers import Work

if TYPE_CHECKING:
    from collections.abc import Generator


@coroutine
def for_ever(_event: object) -> Generator[None, None, None]:
    """As a loop sees it, it waits."""
    yield


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_run_that_its_loop_has_left_unfinished_is_nobodys_failure(
    caplog: pytest.LogCaptureFixture, cancelled: bool
) -> None:
    """R8: an interpreter's end is told in no handler's name."""
    carried: Any = SimpleNamespace(
        name="h", renamed_from=None, given=lambda row: row, atomic=False, call=for_ever
    )
    line: Any = None
    handling = Handling(carried, Log(line, Lease()), "outbox")
    row: Any = {"event_id": uuid4()}
    task: Any = SimpleNamespace(cancelling=lambda: int(cancelled))
    run = Run(handling, Work(row, None, None), task)
    running = run_handler(run)
    Context().run(running.send, None)
    running.close()
    assert caplog.records == []
