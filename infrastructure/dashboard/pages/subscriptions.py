"""Subscriptions: all of them, and one handler or publisher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.dashboard.pages.windows import window_of
from outbox_kernel.infrastructure.operations.attention import about, needs
from outbox_kernel.infrastructure.operations.dead_letters import groups
from outbox_kernel.infrastructure.operations.glance import glance, look_at, open_of
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
    every = needs(seen)
    # In the order of their names, whatever they need: no row may move under somebody's hand on its button.
    needed = {each.name: about(each, every) for each in seen.subscriptions}
    return visit.page("subscriptions.html", now, seen=seen, needed=needed)


async def one(visit: Visit) -> Response:
    """Show one handler or publisher: how it goes, what it left behind, what it is at."""
    name, window = visit.required("name"), window_of(visit)
    async with visit.board.looking() as desk:
        seen = await look_at(desk, name)
        if not seen.subscriptions:
            raise NothingFound(f"there is no handler or publisher {name!r}: look among the subscriptions")
        went = await series(desk, WINDOWS[window], name)
        took = await latencies(desk, name)
        waiting, dead = await open_of(desk, name), await groups(desk, handler=name)
        now = await desk.clock()
    [found] = seen.subscriptions
    every = needs(seen)
    return visit.page(
        "subscription.html",
        now,
        found=found,
        went=went[0] if went else None,
        took=took.get(name),
        needs=[*(need for need in every if need.kind == "relays"), *about(found, every)],
        dead=dead,
        waiting=waiting,
        carried=[each for each in seen.live if name in each.abilities],
        window=window,
        windows=list(WINDOWS),
    )
