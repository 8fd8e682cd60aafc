"""Subscriptions: all of them, and one handler or publisher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.dashboard.pages.windows import window_of
from outbox_kernel.infrastructure.operations.abilities import relays
from outbox_kernel.infrastructure.operations.dead_letters import groups
from outbox_kernel.infrastructure.operations.glance import GROUPS_MAX, glance, glance_at, open_of
from outbox_kernel.infrastructure.operations.selection import NothingFound
from outbox_kernel.infrastructure.operations.series import WINDOWS, latencies, series

if TYPE_CHECKING:
    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.visit import Visit


async def every(visit: Visit) -> Response:
    """Show all subscriptions, with what may be done about each."""
    async with visit.board.looking() as desk:
        seen = await glance(desk)
        now = await desk.clock()
    return visit.page("subscriptions.html", now, seen=seen)


async def one(visit: Visit) -> Response:
    """Show one handler or publisher: how it goes, what it left behind, what it is at."""
    name, window = visit.required("name"), window_of(visit)
    async with visit.board.looking() as desk:
        found = await glance_at(desk, name)
        if found is None:
            raise NothingFound(f"there is no handler or publisher {name!r}: look among the subscriptions")
        went = await series(desk, WINDOWS[window], name)
        took = await latencies(desk, name)
        dead = await groups(desk, handler=name, groups_max=GROUPS_MAX)
        waiting = await open_of(desk, name)
        carried = [each for each in await relays(desk) if each.live and name in each.abilities]
        now = await desk.clock()
    return visit.page(
        "subscription.html",
        now,
        found=found,
        went=went[0] if went else None,
        took=took.get(name),
        dead=dead,
        waiting=waiting,
        carried=carried,
        window=window,
        windows=list(WINDOWS),
    )
