"""What a relay has in hand: claimed rows, and what became of each."""

from __future__ import annotations

import json
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import asyncpg
import attrs

from outbox_kernel.kernel.context import Delivery
from outbox_kernel.kernel.events import stamp_event
from outbox_kernel.kernel.serialization import deserialize_event, parsed
from outbox_kernel.kernel.stored import StoredEvent

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.infrastructure.relay.lanes import Lane
    from outbox_kernel.infrastructure.relay.roster import Carried, CarriedAny, CarriedPublisher
    from outbox_kernel.infrastructure.relay.store import Lease
    from outbox_kernel.kernel.context import Header
    from outbox_kernel.kernel.events import DomainEvent

# Which queues have brought it, beside the first: for a replay, and nobody's context.
OTHER_QUEUES = "also_consumed_from"
_NO_HEADERS: dict[str, Header] = {}
_STORED_COLUMNS = tuple({each.name for each in attrs.fields(StoredEvent)} - {"payload", "headers"})


def _column(name: str) -> Any:
    return property(itemgetter(name))


class ClaimedEvent(asyncpg.Record):
    """A claimed row as the driver gives it: to copy each into an object would cost a tenth of the throughput."""

    position: int = _column("position")
    event_id: UUID = _column("event_id")
    event_type: str = _column("event_type")
    event_version: int = _column("event_version")
    aggregate_type: str | None = _column("aggregate_type")
    aggregate_id: UUID | None = _column("aggregate_id")
    aggregate_key: str | None = _column("aggregate_key")
    aggregate_version: int | None = _column("aggregate_version")
    payload: str = _column("payload")
    occurred_at: datetime = _column("occurred_at")
    created_at: datetime = _column("created_at")
    takeovers: int = _column("takeovers")

    @property
    def headers(self) -> dict[str, Header]:
        """The context it was recorded in."""
        text = self["headers"]
        if text == "{}":
            return _NO_HEADERS
        headers: dict[str, Header] = json.loads(text)
        headers.pop(OTHER_QUEUES, None)
        return headers

    @property
    def order_key(self) -> str | None:
        """The aggregate within which order holds, as a delivery names it."""
        aggregate = self.ordered_in
        return None if aggregate is None else f"{aggregate[0]}:{aggregate[1]}"

    @property
    def ordered_in(self) -> tuple[str, UUID] | None:
        """The aggregate within which order holds; none, where it is handled from some moment on."""
        if self["aggregate_id"] is None or self["not_before"] is not None:
            return None
        return self["aggregate_type"], self["aggregate_id"]

    def restored(self) -> DomainEvent:
        """Decode it into an event of its newest version, stamped with its aggregate."""
        event = deserialize_event(self["event_type"], self["payload"], self["event_version"])
        stamp_event(
            event,
            self["aggregate_type"],
            self["aggregate_id"],
            self["aggregate_version"],
            aggregate_key=self["aggregate_key"],
            not_before=self["not_before"],
        )
        return event

    def stored(self) -> StoredEvent:
        """Return it as it is stored, for whoever need not know its class."""
        return StoredEvent(
            payload=parsed(self["event_type"], self["payload"]),
            headers=self.headers,
            **{name: self[name] for name in _STORED_COLUMNS},
        )

    def delivery(self, attempt: int) -> Delivery:
        """Return what a handler may read about this attempt."""
        return Delivery(self["event_id"], self["position"], attempt, self.headers)


@attrs.define(eq=False)
class Outcome:
    """How a handler stands with an event that it did not succeed with at once."""

    handler: str
    order_key: str
    status: str
    attempts: int = 0
    takeovers: int = 0
    on_dead: str = "park"
    delay_seconds: float = 0.0
    error_message: str | None = None


@attrs.define(eq=False)
class EventWork:
    """An event in its first pass: who is to handle it yet, and who did not succeed."""

    row: ClaimedEvent
    claim: int
    todo: list[Carried]
    lane: Lane
    lease: Lease
    posts: tuple[CarriedPublisher, ...] = ()
    """Who publishes it in its first pass."""
    posting: int = 0
    """How many of them it waits for."""
    is_posted: bool = False
    """Whether one of them has begun: it may be at the broker."""
    is_given_back: bool = False
    outcomes: list[Outcome] = attrs.Factory(list)
    taken_to_mark: bool = False

    def key_for(self, *, ordered: bool) -> str:
        """Return the key of the turn that a handler's delivery keeps."""
        return (self.row.order_key if ordered else None) or str(self.row.event_id)


class ClaimedDelivery(ClaimedEvent):
    """A claimed delivery with its event."""

    handler: str = _column("handler")
    turn: str = _column("order_key")
    place: int = _column("place")
    attempts: int = _column("attempts")


@attrs.define(eq=False)
class DeliveryWork:
    """One delivery: one event for one handler."""

    row: ClaimedDelivery
    carried: CarriedAny
    attempts: int
    lease: Lease
    aside: bool = False
    """It is slow, or a broker's affair, and not counted as in hand."""
