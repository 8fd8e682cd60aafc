"""Before something is done that is not simply undone: how much it is about, and what will come of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.dashboard.pages.limits import DAYS_MAX, USUAL_DAYS
from outbox_kernel.infrastructure.dashboard.pages.meant import ids_of, meant_of, said_of
from outbox_kernel.infrastructure.dashboard.security import Refused
from outbox_kernel.infrastructure.operations import dead_letters, mending, subscriptions
from outbox_kernel.infrastructure.operations.dead_letters import Matching
from outbox_kernel.infrastructure.operations.glance import ahead_of, glance_at
from outbox_kernel.infrastructure.operations.purging import stored_before
from outbox_kernel.infrastructure.operations.selection import Moment, Selection

if TYPE_CHECKING:
    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.visit import Visit


async def retry(visit: Visit) -> Response:
    """Ask whether dead letters are to run again."""
    return await _mending(visit, "retry")


async def skip(visit: Visit) -> Response:
    """Ask whether deliveries are to be let go."""
    return await _mending(visit, "skip")


async def _mending(visit: Visit, verb: str) -> Response:
    said = said_of(visit.asked)
    meant = meant_of(said)
    chosen = ids_of(visit.request.query_params.getlist("event"))
    async with visit.board.looking() as desk:
        if len(chosen) == 1:
            choose = mending.choose_for_retry if verb == "retry" else mending.choose_for_skip
            found = Matching.of(await choose(desk, Selection(chosen[0], meant.handler)))
        elif chosen:
            found = Matching.of(await dead_letters.chosen_of(desk, meant.handler, chosen))
        else:
            found = await dead_letters.matching(desk, meant)
        now = await desk.clock()
    return visit.page(
        "confirm_mending.html",
        now,
        verb=verb,
        said=said,
        chosen=chosen,
        found=found,
    )


async def rewind(visit: Visit) -> Response:
    """Ask from where on a subscription is to have the past again, and say how much that is."""
    name = visit.required("name")
    said, again = visit.asked("since"), visit.asked("again") is not None
    position, wrong = visit.asked("position"), None
    async with visit.board.looking() as desk:
        found = await subscriptions.subscription(desk, name)
        ahead = None
        try:
            if position is not None:
                ahead = await ahead_of(desk, name, position_of(position))
            elif said is not None:
                ahead = await ahead_of(desk, name, await Moment.parse(said).position(desk))
        except ValueError:
            wrong = "write a position such as 4711, or a moment: 2026-01-31T12:00+01:00, 90m, 24h, 7d"
        now = await desk.clock()
    return visit.page(
        "confirm_rewind.html",
        now,
        found=found,
        since=said,
        position=position,
        again=again,
        ahead=ahead,
        wrong=wrong,
    )


async def retire(visit: Visit) -> Response:
    """Ask whether a subscription is to end, and say what ends with it."""
    name, pattern = visit.required("name"), visit.asked("pattern")
    async with visit.board.looking() as desk:
        found = await subscriptions.subscription(desk, name)
        left = await glance_at(desk, name)
        now = await desk.clock()
    return visit.page("confirm_retire.html", now, found=found, left=left, pattern=pattern)


async def purge(visit: Visit) -> Response:
    """Ask whether what was delivered long ago is to be deleted."""
    days = days_of(visit.asked("days"))
    async with visit.board.looking() as desk:
        older = await stored_before(desk, days)
        now = await desk.clock()
    return visit.page("confirm_purge.html", now, days=days, older=older)


def days_of(text: str | None) -> float:
    """Read a number of days, or refuse what is none."""
    try:
        days = USUAL_DAYS if text is None else float(text)
    except ValueError:
        days = math.nan
    if not 0 <= days <= DAYS_MAX:
        raise Refused(400, f"{text!r} is no number of days: write one from 0 to {DAYS_MAX:,.0f}", "form")
    return days


def position_of(text: str) -> int:
    """Read a position, or raise ValueError."""
    number = int(text)
    if not 1 <= number < 10**18:
        raise ValueError(text)
    return number
