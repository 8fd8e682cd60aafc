"""One field for whatever somebody has at hand: an id, a position, an aggregate, a handler's name."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from starlette.responses import RedirectResponse

from outbox_kernel.infrastructure.dashboard.pages.events import event_of
from outbox_kernel.infrastructure.operations.aggregates import find as found_aggregates
from outbox_kernel.infrastructure.operations.finding import has_event, has_name
from outbox_kernel.infrastructure.operations.selection import AggregateKey

if TYPE_CHECKING:
    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.visit import Visit
    from outbox_kernel.infrastructure.operations import Desk


async def find(visit: Visit) -> Response:
    """Lead to what the words mean: an event, an aggregate, a handler; else to the events of that type."""
    words = visit.asked("q")
    if words is None:
        return RedirectResponse(visit.link("/events"), 303)
    async with visit.board.looking() as desk:
        return RedirectResponse(await _meant(visit, desk, words), 303)


async def _meant(visit: Visit, desk: Desk, words: str) -> str:
    event = event_of(words)
    if event is not None and await has_event(desk, event):
        return visit.link(f"/events/{event}")
    if await has_name(desk, words):
        return visit.link("/subscription", name=words)
    key = _key(words)
    if key is not None and await found_aggregates(desk, key):
        return visit.link("/aggregate", key=words)
    return visit.link("/events", type=words if not isinstance(event, UUID) else None, missed=words)


def _key(words: str) -> AggregateKey | None:
    try:
        return AggregateKey.parse(words)
    except ValueError:
        return None
