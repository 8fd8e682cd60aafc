"""Timeouts: a run that is slow steps aside, and one that has had its time is ended (R5, R8)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from outbox_kernel.infrastructure.relay.limits import GRACE_SECONDS, SLOW_SECONDS
from outbox_kernel.kernel.limits import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Iterable

    from outbox_kernel.infrastructure.relay.run import Run
    from outbox_kernel.infrastructure.relay.workers import Workers


def watch(workers: Workers) -> None:
    """Let slow runs step aside, end those whose time is over, and give up those that ignore that."""
    now = time.monotonic()
    for worker, run in workers.running:
        elapsed, limit = now - run.started, run.carried.timeout_seconds
        if elapsed > min(SLOW_SECONDS, limit) and not workers.is_probing:
            workers.step_aside(worker)
        elapsed -= run.waited_seconds(now)
        if run.ended_for is None and elapsed > limit:
            run.end("timeout")
        elif run.ended_for == "timeout" and elapsed > limit + GRACE_SECONDS:
            workers.give_up(worker, run)


def patience_seconds(runs: Iterable[Run], task: Task[Any] | None) -> float:
    """Return how long a task may keep the event loop: a run's own, else it may be of any that is at work."""
    limits: dict[Any, float] = {run.task: run.carried.timeout_seconds for run in runs}
    return limits.get(task, max(limits.values(), default=TIMEOUT_SECONDS)) + GRACE_SECONDS
