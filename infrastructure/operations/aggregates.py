"""One aggregate's events a page at a time, however many it has (O3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.operations.limits import AGGREGATE_EMITTED_MAX, AGGREGATE_EVENTS_MAX
from outbox_kernel.infrastructure.operations.masking import presentable, read
from outbox_kernel.infrastructure.operations.stories import ToldEvent
from outbox_kernel.infrastructure.outbox.sql.searching import OF_AGGREGATE, TYPES_OF_AGGREGATE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.infrastructure.operations.selection import AggregateKey

# Beyond any that there is, but for a number that somebody may have written.
_END = 2**63 - 1


@attrs.frozen
class Aggregate:
    """An aggregate that the outbox has events of."""

    type: str
    id: UUID
    key: str | None
    """Its id as written, where that is no UUID."""

    def __str__(self) -> str:
        return f"{self.type}:{self.key or self.id}"


@attrs.frozen
class Place:
    """Behind an event of an aggregate: its position, and the number that comes before.

    Of what queues have brought, numbers count apart: whoever may write to a queue writes any.
    """

    position: int = _END
    version: int = _END
    brought: int = _END


@attrs.frozen
class Events:
    """A page of an aggregate's events, the newest first."""

    events: list[ToldEvent]
    next: Place | None
    """Where the page of older ones begins; None: there are none."""


async def find(desk: Desk, key: AggregateKey) -> list[Aggregate]:
    """Return which aggregates of the outbox are called so: an id without a type may be of several."""
    rows = await desk.run(TYPES_OF_AGGREGATE, types=await key.types(desk), ids=key.ids)
    return [Aggregate(row["type"], row["aggregate_id"], row["aggregate_key"]) for row in rows]


async def events_of(desk: Desk, aggregate: Aggregate, behind: Place) -> Events:
    """Tell an aggregate's events from a place on."""
    rows = await desk.run(
        OF_AGGREGATE,
        type=aggregate.type,
        id=aggregate.id,
        position=behind.position,
        version=behind.version,
        brought=behind.brought,
        events_max=AGGREGATE_EVENTS_MAX + 1,
        look_max=AGGREGATE_EMITTED_MAX,
    )
    told = [_told(row) for row in rows[:AGGREGATE_EVENTS_MAX]]
    if len(rows) <= AGGREGATE_EVENTS_MAX:
        return Events(told, None)
    ours, brought = (
        [
            each.aggregate_version
            for each in told
            if each.aggregate_version is not None and (each.source is None) == is_ours
        ]
        for is_ours in (True, False)
    )
    last = Place(told[-1].position, min(ours, default=behind.version), min(brought, default=behind.brought))
    return Events(told, last)


def _told(row: Mapping[str, Any]) -> ToldEvent:
    payload, known = presentable(row["event_type"], read(row["payload"]))
    return ToldEvent(**{**row, "payload": payload, "class_known": known, "headers": read(row["headers"])})
