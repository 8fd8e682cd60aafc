"""A broker in memory, the second adapter of both ports: it routes as a topic exchange does, and fails when told to."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, ClassVar

import attrs

from outbox_kernel.infrastructure.brokers.limits import MESSAGE_BYTES_MAX
from outbox_kernel.infrastructure.brokers.port import (
    PUBLISHED,
    BrokerRefusal,
    BrokerUnreachable,
    Incoming,
    Message,
    Outage,
    Outcome,
    QueueMissing,
    Refused,
    epitaph,
)
from outbox_kernel.infrastructure.brokers.topology import routes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outbox_kernel.infrastructure.brokers.topology import Publisher, Queue, Topology


def _end_inlets(broker: MemoryBroker, _: attrs.Attribute[str | None], why: str | None) -> str | None:
    for inlet in [each for readers in broker.readers.values() for each in readers] if why else []:
        inlet.let_go()
    return why


@attrs.define(eq=False)
class MemoryBroker:
    """Queues by name, filled by whoever publishes through an outlet of it, and emptied through inlets."""

    queues: dict[str, list[Message]] = attrs.Factory(dict)
    """What is ready in each."""
    down: str | None = attrs.field(default=None, on_setattr=_end_inlets)
    """Why it takes and gives nothing, while it does not."""
    full: set[str] = attrs.Factory(set)
    """Queues that take no more."""
    message_bytes_max: int = MESSAGE_BYTES_MAX
    silent: bool = False
    """Whether it confirms nothing: each message then waits until the deadline."""
    bindings: dict[str, Queue] = attrs.Factory(dict)
    readers: defaultdict[str, list[MemoryInlet]] = attrs.Factory(lambda: defaultdict(list))
    """The open inlets of each queue; the first is given its messages."""

    def outlet(self, publisher: Publisher, topology: Topology) -> MemoryOutlet:
        """Return the outlet of a publisher."""
        return MemoryOutlet(self, publisher, topology)

    def inlet(self, queue: str, topology: Topology, *, prefetch: int) -> MemoryInlet:
        """Return an inlet of a queue."""
        return MemoryInlet(self, queue, topology.reading([queue]), prefetch)

    def declare(self, topology: Topology) -> None:
        """Make the queues that are missing."""
        self.queues.setdefault(topology.dead_letter_queue, [])
        for queue in topology.queues:
            if not queue.optional:
                self.bindings[queue.name] = queue
                self.queues.setdefault(queue.name, [])

    def delete(self, queue: str) -> None:
        """Drop a queue with all that is in it."""
        self.bindings.pop(queue, None)
        self.queues.pop(queue, None)
        for inlet in [*self.readers[queue]]:
            inlet.let_go()

    def put(self, queue: str, message: Message) -> None:
        """Put a message into a queue."""
        self.queues[queue].append(message)
        self.tell(queue)

    def tell(self, queue: str) -> None:
        """Let who waits for a queue look again."""
        for inlet in self.readers[queue]:
            inlet.changed.set()

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
            self.put(name, message)
        return PUBLISHED


@attrs.define(eq=False)
class MemoryOutlet:
    """A publisher's way into the broker's queues."""

    broker: MemoryBroker
    publisher: Publisher
    topology: Topology
    confirm_seconds_max: float = 10.0
    system: ClassVar[str] = "memory"
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


@attrs.define(eq=False)
class MemoryInlet:
    """The way out of a queue: what is not settled goes back to its head when the inlet lets go."""

    broker: MemoryBroker
    queue: str
    topology: Topology
    prefetch: int
    system: ClassVar[str] = "memory"
    changed: asyncio.Event = attrs.Factory(asyncio.Event)
    """Set when there may be more to receive, or nothing any more."""
    _held: dict[int, Message] = attrs.Factory(dict)
    _number: int = 0
    _is_finished: bool = False

    async def open(self) -> None:
        """Stand in line for the queue."""
        await asyncio.sleep(0)
        if self.broker.down is not None:
            raise BrokerUnreachable(self.broker.down)
        self.broker.declare(self.topology)
        if self.queue not in self.broker.queues:
            raise QueueMissing(f"there is no queue {self.queue!r}: declare it in a context's topology")
        self._is_finished = False
        self.broker.readers[self.queue].append(self)

    async def receive(self, most: int) -> Sequence[Incoming]:
        """Return what is ready, once it is our turn."""
        while not self._is_finished:
            readers = self.broker.readers[self.queue]
            if self not in readers:
                raise BrokerUnreachable(f"queue {self.queue!r} gives no more")
            if readers[0] is self and (found := self._next(min(most, self.prefetch - len(self._held)))):
                return found
            self.changed.clear()
            await self.changed.wait()
        return []

    async def acknowledge(self, messages: Sequence[Incoming]) -> None:
        """Forget them."""
        for each in messages:
            self._held.pop(each.handle, None)
        self.changed.set()

    async def bury(self, message: Incoming, reason: str, _: Callable[[BrokerRefusal], None]) -> None:
        """Move it, unless there is no room, or somebody has deleted where it goes."""
        letters = self.topology.dead_letter_queue
        if letters in self.broker.full or letters not in self.broker.queues:
            self.broker.declare(self.topology)
            raise BrokerRefusal(
                f"queue {letters!r} takes no dead letter: look whether it is full, or was deleted"
            )
        if (found := self._held.pop(message.handle, None)) is not None:
            headers = {**found.headers, **epitaph(self.queue, reason)}
            self.broker.put(letters, attrs.evolve(found, headers=headers))
            self.changed.set()

    async def is_empty(self) -> bool:
        """Whether there is nothing ready, and nothing here."""
        if self not in self.broker.readers[self.queue]:
            raise BrokerUnreachable(f"queue {self.queue!r} is not open")
        return not self._held and not self.broker.queues[self.queue]

    async def finish(self) -> None:
        """Give no more."""
        self._is_finished = True
        self.changed.set()

    async def put_back(self) -> None:
        """Give back, and let the next have its turn."""
        self.let_go()

    async def close(self) -> None:
        """The same: there is no connection."""
        self.let_go()

    def let_go(self) -> None:
        """Put what is held back in its place, and leave the line."""
        held, self._held = self._held, {}
        if self in self.broker.readers[self.queue]:
            self.broker.readers[self.queue].remove(self)
        if self.queue in self.broker.queues:
            self.broker.queues[self.queue][:0] = held.values()
        self.broker.tell(self.queue)
        self.changed.set()

    def _next(self, most: int) -> list[Incoming]:
        ready = self.broker.queues[self.queue]
        taken, ready[:most] = ready[:most], []
        first, self._number = self._number, self._number + len(taken)
        self._held.update(enumerate(taken, first))
        return [Incoming(each.message_id, each.headers, each.body, n) for n, each in enumerate(taken, first)]
