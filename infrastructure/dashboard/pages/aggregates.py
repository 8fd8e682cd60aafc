"""One aggregate's history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.dashboard.operator import Right
from outbox_kernel.infrastructure.dashboard.paging import FIELD, encoded, place_of
from outbox_kernel.infrastructure.dashboard.security import Refused
from outbox_kernel.infrastructure.operations.aggregates import Place, events_of, find
from outbox_kernel.infrastructure.operations.selection import AggregateKey, NothingFound

if TYPE_CHECKING:
    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.visit import Visit


async def page(visit: Visit) -> Response:
    """Show what happened to an aggregate, the newest first; an id that several have asks which is meant."""
    said = visit.required("key")
    try:
        key = AggregateKey.parse(said)
    except ValueError:
        raise Refused(404, f"{said!r} names no aggregate: write TYPE:ID, or ID", "page") from None
    place = place_of(visit.request, 3)
    async with visit.board.looking() as desk:
        found = await find(desk, key)
        if not found:
            raise NothingFound(f"the outbox has no event of aggregate {key}: look for it among the events")
        events = await events_of(desk, found[0], Place(*place) if place else Place())
        now = await desk.clock()
    return visit.page(
        "aggregate.html",
        now,
        aggregate=found[0],
        others=found[1:],
        events=events.events,
        next=encoded(*attrs.astuple(events.next)) if events.next else None,
        is_first=place is None,
        from_field=FIELD,
        may_see=visit.may(Right.PAYLOAD),
    )
