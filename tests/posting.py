"""A relay under test that publishes, into a broker in memory that is as slow and as odd as the test wants."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from outbox_kernel.infrastructure.brokers import Message, Outcome, Outlet, Publisher, Queue, Topology
from outbox_kernel.infrastructure.brokers.memory import MemoryBroker, MemoryOutlet
from outbox_kernel.infrastructure.relay import OutboxRelay, RelaySettings
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


def told(broker: MemoryBroker, queue: str = "notes") -> list[str]:
    """What lies in a queue, in order."""
    return [json.loads(each.body)["what"] for each in broker.queues.get(queue, [])]


def relay(
    stage: Stage,
    outlet: Outlet,
    *handlers: HandlerRegistration,
    at: float | None = 0,
    copy: Outlet | None = None,
    **settings: Any,
) -> OutboxRelay:
    """A relay that carries the publisher, and the other one if it is given an outlet too."""
    found = OutboxRelay(
        stage.engine,
        stage.container,
        handlers=handlers,
        publishers={BANK: outlet} if copy is None else {BANK: outlet, COPY: copy},
        settings=RelaySettings(**settings),
        now=None if at is None else stage.at(at),
    )
    stage.relays.append(found)
    return found


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
