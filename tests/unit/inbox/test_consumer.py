"""A consumer of several queues ends when one of them is served no more, and says why (R11, T3)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from outbox_kernel.infrastructure.brokers import Queue, Topology
from outbox_kernel.infrastructure.brokers.memory import MemoryBroker, MemoryInlet
from outbox_kernel.infrastructure.cancelling import CancelledByOthers
from outbox_kernel.infrastructure.inbox.consumer import Consumer

DEADLINE_SECONDS = 10.0


TOPOLOGY = Topology.of([], [Queue(each, ("#",)) for each in ("even", "odd", "other")], exchange="bank")


class Odd(MemoryInlet):
    """The way out of a queue whose client cancels whoever opens it."""

    async def open(self) -> None:
        raise asyncio.CancelledError


@attrs.define
class Broker(MemoryBroker):
    """A broker with one such queue."""

    def inlet(self, queue: str, topology: Topology, *, prefetch: int) -> MemoryInlet:
        return (Odd if queue == "odd" else MemoryInlet)(self, queue, topology, prefetch)


def consumer(*queues: str) -> Consumer:
    subscribed = asyncio.Event()
    subscribed.set()
    relay: Any = SimpleNamespace(subscribed=subscribed, look=None, note_pause=lambda *_: None)
    engine: Any = None
    return Consumer(Broker(), TOPOLOGY, queues, engine, relay=relay)


async def test_a_queue_whose_task_is_cancelled_ends_the_consumer_with_a_sentence() -> None:
    """Nobody would take from it any more, while the others go on."""
    with pytest.raises(
        CancelledByOthers,
        match="outbox-take-odd was cancelled by other code of this process, so this service ends, and",
    ):
        async with asyncio.timeout(DEADLINE_SECONDS):
            await consumer("even", "odd").run()


async def test_told_to_stop_it_waits_for_every_queue() -> None:
    found = consumer("even", "other")
    running = asyncio.create_task(found.run())
    await found.consuming.wait()
    found.stop()
    await running
