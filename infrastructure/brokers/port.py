"""The publisher's port: one message goes out, and what became of it comes back (T1, R7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outbox_kernel.infrastructure.brokers.topology import Publisher, Topology

HeaderValue = str | int | bool | None


@attrs.frozen
class Message:
    """An event on its way out; the routing key is the event's type, the id the event's own."""

    message_id: str
    routing_key: str
    body: bytes
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

    async def publish(self, message: Message, /) -> Outcome:
        """Send one message and await its confirm; many at once share a channel."""

    async def prove(self) -> Outage | None:
        """Connect if need be, see that the topology stands and the broker takes messages, or say why not."""

    async def close(self) -> None:
        """Hang up."""


class Broker(Protocol):
    """Where publishers find their outlets."""

    def outlet(self, publisher: Publisher, topology: Topology, /) -> Outlet:
        """Return the outlet of a publisher; it connects when it is first used."""
