"""The two ports: an outlet sends a publisher's messages, an inlet takes those of a queue (T0, T1, T3, R7)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import attrs

from outbox_kernel.infrastructure.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from outbox_kernel.infrastructure.brokers.topology import Publisher, Topology

HeaderValue = str | int | bool | None

# What a dead letter has beside its message's own headers: why, from which queue and when it was buried.
REASON_HEADER = "x-outbox-reason"
QUEUE_HEADER = "x-outbox-queue"
MOMENT_HEADER = "x-outbox-at"


def epitaph(queue: str, reason: str) -> dict[str, str]:
    """Return what is written on a message that is buried now."""
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    return {REASON_HEADER: reason, QUEUE_HEADER: queue, MOMENT_HEADER: moment}


class BrokerRefusal(InfrastructureError):
    """The broker, or the road to it, said no; the client's error is the `__cause__`."""


class BrokerUnreachable(BrokerRefusal):
    """Nothing answers at the address, or the connection was lost."""


class BrokerLoginRefused(BrokerRefusal):
    """The broker does not let this user in, or not into this part of it."""


class BrokerForbids(BrokerRefusal):
    """The user is in, and may not do this."""


class TopologyConflict(BrokerRefusal):
    """What a topology names exists, and is another one."""


class QueueMissing(BrokerRefusal):
    """Nobody has declared the queue."""


# --- out ------------------------------------------------------------------------------------------------


@attrs.frozen
class Message:
    """An event on its way out; the routing key is the event's type, the id the event's own."""

    message_id: str
    routing_key: str
    # It may hold secrets, and an outlet's error may show the message (K11).
    body: bytes = attrs.field(repr=False)
    headers: Mapping[str, HeaderValue]


@attrs.frozen
class Published:
    """The broker has it, and said so."""


@attrs.frozen
class Refused:
    """The broker does not take this message: that is charged to the event."""

    reason: str


@attrs.frozen
class Outage:
    """The broker takes nothing at the moment, or nobody knows whether it took this: charged to nobody."""

    reason: str


Outcome = Published | Refused | Outage
PUBLISHED = Published()


class Outlet(Protocol):
    """A publisher's way into its exchange. It connects by itself and again; every call ends within a deadline."""

    system: ClassVar[str]
    """What OpenTelemetry's messaging conventions call such a broker."""

    async def publish(self, message: Message, /) -> Outcome:
        """Send one message and await its confirm; many at once share a channel."""

    async def prove(self) -> Outage | None:
        """Connect if need be, see that the topology stands and the broker takes messages, or say why not."""

    async def close(self) -> None:
        """Hang up."""


# --- in -------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Incoming:
    """A message that a queue has given us, ours or a stranger's; `handle` is for its inlet to know it by."""

    message_id: str | None
    headers: Mapping[str, Any]
    body: bytes = attrs.field(repr=False)
    handle: Any


class Inlet(Protocol):
    """The way out of one queue; of all inlets of a queue one is given its messages, so that their order holds.

    What fails is a `BrokerRefusal`: put back, pause, open again. Every call but `receive`, and `bury` while it calls
    `on_wait`, ends within a deadline. What was received is used until `put_back` or `close`, not after.
    """

    system: ClassVar[str]
    """What OpenTelemetry's messaging conventions call such a broker."""

    async def open(self) -> None:
        """Connect, make what the topology has of the queue, and begin to take from it."""

    async def receive(self, most: int, /) -> Sequence[Incoming]:
        """Await messages and return the next, in the queue's order; none once all is given that `finish` left."""

    async def acknowledge(self, messages: Sequence[Incoming], /) -> None:
        """Take these out of the queue; where the queue is lost they come again."""

    async def bury(self, message: Incoming, reason: str, on_wait: Callable[[BrokerRefusal], None], /) -> None:
        """Take it out of the queue once the dead letters have it, with the reason.

        While the broker asks for patience `on_wait` is told why, again and again; what it raises ends the wait.
        """

    async def is_empty(self) -> bool:
        """Whether nothing is ready in the queue, nor received and still in it."""

    async def finish(self) -> None:
        """Take no more; what is on its way to us can still be received."""

    async def put_back(self) -> None:
        """Let go of the queue: all that is neither acknowledged nor buried comes again, in its order."""

    async def close(self) -> None:
        """Put back, and hang up."""


class Broker(Protocol):
    """Where both are found; nothing is connected before it is used."""

    def outlet(self, publisher: Publisher, topology: Topology, /) -> Outlet:
        """Return the outlet of a publisher; the topology is what it needs, and is made where it is missing."""

    def inlet(self, queue: str, topology: Topology, /, *, prefetch: int) -> Inlet:
        """Return an inlet of a queue; it has at most so many messages that are neither acknowledged nor buried."""
