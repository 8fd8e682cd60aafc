"""A broker in memory, for tests of whatever publishes: it routes as a topic exchange does, and fails when told to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.brokers.port import PUBLISHED, Message, Outage, Outcome, Refused
from outbox_kernel.infrastructure.brokers.topology import routes

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.brokers.topology import Publisher, Queue, Topology

MESSAGE_BYTES_MAX = 128 * 1024 * 1024


@attrs.define(eq=False)
class MemoryBroker:
    """Queues by name, filled by whoever publishes through an outlet of it."""

    queues: dict[str, list[Message]] = attrs.Factory(dict)
    down: str | None = None
    """Why it takes nothing, while it does not."""
    full: set[str] = attrs.Factory(set)
    """Queues that take no more."""
    message_bytes_max: int = MESSAGE_BYTES_MAX
    silent: bool = False
    """Whether it confirms nothing: each message then waits until the deadline."""
    bindings: dict[str, Queue] = attrs.Factory(dict)

    def outlet(self, publisher: Publisher, topology: Topology) -> MemoryOutlet:
        """Return the outlet of a publisher."""
        return MemoryOutlet(self, publisher, topology)

    def declare(self, topology: Topology) -> None:
        """Make the queues that are missing."""
        for queue in topology.queues:
            if not queue.optional:
                self.bindings[queue.name] = queue
                self.queues.setdefault(queue.name, [])

    def delete(self, queue: str) -> None:
        """Drop a queue with all that is in it."""
        self.bindings.pop(queue, None)
        self.queues.pop(queue, None)

    def take(self, publisher: Publisher, message: Message) -> Outcome:
        """Route a publisher's message, as a broker does that has just received it."""
        if len(message.body) > self.message_bytes_max:
            return Refused(
                f"it has {len(message.body):,} bytes, and the broker takes {self.message_bytes_max:,}"
            )
        found = [
            queue.name
            for queue in self.bindings.values()
            if queue.exchange == publisher.exchange
            and any(routes(each, message.routing_key) for each in queue.bindings)
        ]
        if not found and publisher.mandatory:
            return Refused(f"exchange {publisher.exchange!r} has no queue for {message.routing_key!r}")
        if full := self.full.intersection(found):
            return Refused(f"queue {min(full)!r} takes no more")
        for name in found:
            self.queues[name].append(message)
        return PUBLISHED


@attrs.define(eq=False)
class MemoryOutlet:
    """A publisher's way into the broker's queues."""

    broker: MemoryBroker
    publisher: Publisher
    topology: Topology
    confirm_seconds_max: float = 10.0
    _declared: bool = False

    async def publish(self, message: Message) -> Outcome:
        """Route it."""
        if outage := await self.prove():
            return outage
        await asyncio.sleep(0)
        if self.broker.silent:
            return Outage(f"no confirm within {self.confirm_seconds_max:g} s")
        outcome = self.broker.take(self.publisher, message)
        if isinstance(outcome, Refused):
            self._declared = False  # a queue may be gone: the next one finds out
        return outcome

    async def prove(self) -> Outage | None:
        """Declare what is missing, once per connection."""
        await asyncio.sleep(0)
        if self.broker.down is not None:
            self._declared = False
            return Outage(self.broker.down)
        if not self._declared:
            self.broker.declare(self.topology)
            self._declared = True
        return None

    async def close(self) -> None:
        """Forget the connection."""
        self._declared = False
