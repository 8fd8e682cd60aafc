"""What a worker has in hand, whenever it is cancelled (R8)."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from outbox_kernel.infrastructure.relay.workers import Queue, Work, Worker, Workers
from outbox_kernel.infrastructure.waiting import Signal

if TYPE_CHECKING:
    import pytest


async def test_what_was_left_for_later_is_not_given_back_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """R4: its batch would count as ended while something else of it is at work."""
    monkeypatch.setattr("outbox_kernel.infrastructure.relay.workers.LOOP_SECONDS_MAX", -1.0)
    given_back: list[Work] = []
    subscriber: Any = SimpleNamespace(
        must_wait=lambda _: True, given_back=lambda work, **_: given_back.append(work)
    )
    workers = Workers(subscriber, 1, Signal(), steps_aside=True, is_bounded=False, pacer=None)
    worker, row = Worker(workers), SimpleNamespace()
    worker.queue = Queue("key", [Work(row, "key", None)])  # type: ignore[arg-type]
    going = asyncio.create_task(worker._go_through(worker.queue, time.monotonic()))  # noqa: SLF001
    await asyncio.sleep(0)
    going.cancel()
    await asyncio.wait([going])
    worker.let_go()
    assert given_back == []
