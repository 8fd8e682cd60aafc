"""A relay under test that publishes, into a broker in memory that is as slow and as odd as the test wants."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from outbox_kernel.infrastructure.brokers import Message, Outcome, Outlet, Publisher, Queue, Topology
from outbox_kernel.infrastructure.brokers.memory import MemoryBroker, MemoryOutlet
from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.relaying import Stage

TOPOLOGY = Topology.of(
    [Publisher("bank", ("bank.*",)), Publisher("copy", ("bank.*",), exchange="copies")],
    [
        Queue("notes", ("bank.#",)),
        Queue("other", ("shop.*",)),
        Queue("copies", ("bank.#",), exchange="copies"),
    ],
    exchange="bank",
)
BANK, COPY = TOPOLOGY.publishers
PLACES = """
SELECT reader, number, position FROM outbox_progress ORDER BY reader, number
"""


def told(broker: MemoryBroker, queue: str = "notes") -> list[str]:
    """What lies in a queue, in order."""
    return [json.loads(each.body)["what"] for each in broker.queues.get(queue, [])]


def relay(
    stage: Stage,
    outlet: Outlet,
    *handlers: HandlerRegistration,
    at: float | None = 0,
    copy: Outlet | None = None,
    **options: Any,
) -> OutboxRelay:
    """A relay that carries the publisher, and the other one if it is given an outlet too."""
    publishers = {BANK: outlet} if copy is None else {BANK: outlet, COPY: copy}
    return stage.relay(*handlers, at=at, publishers=publishers, **options)


async def written(stage: Stage) -> list[Any]:
    """Every place that was ever written down."""
    return [tuple(row) for row in await stage.witness.fetch(PLACES)]


class Slow(MemoryOutlet):
    """Takes its time for each message until it is let go."""

    go: asyncio.Event
    sending: int = 0
    """How many have been given to it."""

    async def publish(self, message: Message) -> Outcome:
        self.sending += 1
        await self.go.wait()
        return await super().publish(message)


def slow_outlet(broker: MemoryBroker) -> Slow:
    """A slow way into this broker."""
    outlet = Slow(broker, BANK, TOPOLOGY)
    outlet.go, outlet.sending = asyncio.Event(), 0
    return outlet


async def has_been_given(outlet: Slow, count: int) -> bool:
    """Whether that many messages wait in it, or have."""
    return outlet.sending >= count
