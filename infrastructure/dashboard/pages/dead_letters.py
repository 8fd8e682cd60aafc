"""Dead letters: grouped by handler and error, and those of one group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.dashboard.pages.meant import meant_of, said_of
from outbox_kernel.infrastructure.dashboard.paging import FIELD, place_of
from outbox_kernel.infrastructure.operations.abilities import relays, types_known
from outbox_kernel.infrastructure.operations.dead_letters import count_of, counts
from outbox_kernel.infrastructure.operations.dead_letters import groups as grouped
from outbox_kernel.infrastructure.operations.dead_letters import letters as listed

if TYPE_CHECKING:
    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.visit import Visit


async def groups(visit: Visit) -> Response:
    """Show what died of what."""
    async with visit.board.looking() as desk:
        found, every = await grouped(desk), await counts(desk)
        now = await desk.clock()
    return visit.page(
        "dead_letters.html",
        now,
        groups=found,
        total=sum(every.values()),
        left_out=sum(every.values()) - sum(each.deliveries for each in found),
        handlers=sorted(every),
    )


async def letters(visit: Visit) -> Response:
    """Show the dead letters of one handler, to choose from."""
    said = said_of(visit.asked)
    meant = meant_of(said)
    place = place_of(visit.request)
    async with visit.board.looking() as desk:
        found = await listed(desk, meant, place[0] if place else 0)
        total = await count_of(desk, meant.handler, meant.kind)
        types = types_known(await relays(desk), meant.handler)
        now = await desk.clock()
    return visit.page(
        "letters.html",
        now,
        said=said,
        meant=attrs.asdict(meant, recurse=False),
        found=found,
        total=total,
        types=types,
        is_narrowed=meant.asks_of_events,
        is_first=place is None,
        from_field=FIELD,
    )
