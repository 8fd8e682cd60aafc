"""Events for people to look at: lists, one event's whole story, an aggregate's history (O1, K11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.operations.masking import presentable, read
from outbox_kernel.infrastructure.operations.selection import NothingFound, no_event, type_pattern
from outbox_kernel.infrastructure.operations.waits import Waits
from outbox_kernel.infrastructure.outbox.sql import inspection, listing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.infrastructure.operations.selection import AggregateKey, Moment


@attrs.frozen(kw_only=True)
class Event:
    """An event, and what became of it."""

    position: int
    event_id: UUID
    event_type: str
    event_version: int
    aggregate_type: str | None
    aggregate_id: UUID | None
    aggregate_key: str | None
    aggregate_version: int | None
    source: str | None
    """The queue that brought it; None: it was written here."""
    status: str
    retry_count: int
    occurred_at: datetime
    created_at: datetime
    not_before: datetime | None
    processed_at: datetime | None
    error_message: str | None


@attrs.frozen(kw_only=True)
class Delivery:
    """A delivery, who holds it, and what it waits for."""

    event_id: UUID
    position: int
    handler: str
    order_key: str
    status: str
    attempts: int
    takeovers: int
    alone: bool
    on_dead: str
    settled: bool
    created_at: datetime
    available_at: datetime
    updated_at: datetime
    lease_relay: UUID | None
    lease_epoch: int | None
    error_message: str | None
    held_by: str | None = None
    waits_for: str | None = None


@attrs.frozen(kw_only=True)
class Receipt:
    """What keeps an effect from happening again."""

    event_id: UUID
    handler: str
    outcome: str
    created_at: datetime


@attrs.frozen(kw_only=True)
class ToldEvent(Event):
    """An event with what it said, its secrets masked."""

    payload: dict[str, Any] | str
    class_known: bool
    """Whether its class is known here; if not, each field may be a secret, and is masked."""
    headers: Any
    deliveries: list[Delivery] = attrs.Factory(list)


@attrs.frozen(kw_only=True)
class SubscriptionOfEvent:
    """How far one who is due for an event is with it."""

    name: str
    kind: str
    state: str
    """Of its delivery if there is one; else pending, passed, or that it began later."""
    passed_at: datetime | None
    waits_for: str | None


@attrs.frozen(kw_only=True)
class Story(ToldEvent):
    """One event's whole story."""

    subscriptions: list[SubscriptionOfEvent]
    receipts: list[Receipt]
    waits_for: str | None
    """What it waits for while nobody has subscribed to anything."""

    @property
    def died_at(self) -> datetime | None:
        """When the latest of its deliveries died that are dead now; None: none is."""
        return max((each.updated_at for each in self.deliveries if each.status == "dead"), default=None)


@attrs.frozen(kw_only=True)
class Failure:
    """A delivery that is dead or will be tried again."""

    position: int
    event_id: UUID
    event_type: str
    aggregate_type: str | None
    aggregate_id: UUID | None
    aggregate_key: str | None
    handler: str
    status: str
    attempts: int
    next_at: datetime | None
    failed_at: datetime
    error_message: str | None
    behind: int
    """How many wait for it to be settled."""


@attrs.frozen
class Failures:
    """Some of what failed, and how many there are."""

    total: int
    failed: list[Failure]


async def events(
    desk: Desk,
    *,
    event_type: str | None = None,
    aggregate: AggregateKey | None = None,
    status: str | None = None,
    since: Moment | None = None,
    limit: int = 20,
) -> list[Event]:
    """List events, the newest first."""
    of_aggregate = {"types": await aggregate.types(desk), "ids": aggregate.ids} if aggregate else {}
    rows = await desk.run(
        listing.events(status, of_aggregate=bool(aggregate)),
        pattern=type_pattern([event_type]) if event_type else None,
        first=await since.position(desk) if since else None,
        limit=limit,
        **of_aggregate,
    )
    return [Event(**row) for row in rows]


async def failed(desk: Desk, limit: int) -> Failures:
    """List what is dead or waits for another attempt, the oldest event first."""
    rows = [dict(row) for row in await desk.run(inspection.FAILED, limit=limit)]
    totals = [row.pop("total") for row in rows]
    return Failures(max(totals, default=0), [Failure(**row) for row in rows])


async def history(desk: Desk, aggregate: AggregateKey) -> list[ToldEvent]:
    """Tell all events of an aggregate, with the deliveries of each."""
    rows = await desk.run(inspection.HISTORY, types=await aggregate.types(desk), ids=aggregate.ids)
    if not rows:
        raise NothingFound(
            f"the outbox has no event of aggregate {aggregate}: `outbox events` lists the newest"
        )
    deliveries: dict[UUID, list[Delivery]] = {}
    for row in await desk.run(inspection.DELIVERIES_OF, event_ids=[row["event_id"] for row in rows]):
        deliveries.setdefault(row["event_id"], []).append(Delivery(**row))
    return [ToldEvent(**_told(row), deliveries=deliveries.get(row["event_id"], [])) for row in rows]


async def show(desk: Desk, event_id: UUID | int) -> Story:
    """Tell the whole story of one event, by its id or its position, and what it waits for."""
    by_position = isinstance(event_id, int)
    rows = await desk.run(
        inspection.EVENT,
        event_id=None if by_position else event_id,
        position=event_id if by_position else None,
    )
    if not rows:
        raise no_event(event_id)
    (event,) = rows
    waits = await Waits.at(desk)
    due = await desk.run(inspection.SUBSCRIPTIONS_OF, event_id=event["event_id"])
    paused = {row["name"] for row in due if row["paused_at"] is not None}
    deliveries = [
        Delivery(
            **row,
            held_by=waits.holder(row),
            waits_for=await waits.of_delivery(row, event, is_paused=row["handler"] in paused),
        )
        for row in await desk.run(inspection.DELIVERIES_OF, event_ids=[event["event_id"]])
    ]
    receipts = await desk.run(inspection.RECEIPTS, event_ids=[event["event_id"]])
    return Story(
        **_told(event),
        deliveries=deliveries,
        subscriptions=_subscriptions(due, deliveries, waits),
        receipts=[Receipt(**row) for row in receipts],
        waits_for="the first relay" if event["status"] == "pending" and not due else None,
    )


def _subscriptions(
    due: Iterable[Mapping[str, Any]], deliveries: Iterable[Delivery], waits: Waits
) -> list[SubscriptionOfEvent]:
    by_name = {each.handler: each for each in deliveries}
    return [_subscription(row, by_name.get(row["name"]), waits) for row in due]


def _subscription(row: Mapping[str, Any], delivery: Delivery | None, waits: Waits) -> SubscriptionOfEvent:
    """Tell how far it is: with what it has not come to it is not, whatever it once came to."""
    waits_for: str | None = None
    if not row["is_passed"]:
        state, waits_for = "pending", waits.to_be_read(row)
    elif delivery is not None:
        state, waits_for = delivery.status, delivery.waits_for
    else:
        state = "began later" if row["at_its_beginning"] else "passed"
    is_moment = row["is_passed"] and not row["at_its_beginning"]
    return SubscriptionOfEvent(
        name=row["name"],
        kind=row["kind"],
        state=state,
        passed_at=row["passed_at"] if is_moment else None,
        waits_for=waits_for,
    )


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    payload, known = presentable(row["event_type"], read(row["payload"]))
    return {**row, "payload": payload, "class_known": known, "headers": read(row["headers"])}
