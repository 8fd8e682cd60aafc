"""Relays: who delivers, and what each stands still with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.operations import abilities
from outbox_kernel.infrastructure.operations.overview import stuck_queues
from outbox_kernel.infrastructure.relay.outages import QUEUE

if TYPE_CHECKING:
    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.visit import Visit


async def page(visit: Visit) -> Response:
    """Show every relay with a lease."""
    async with visit.board.looking() as desk:
        found = await abilities.relays(desk)
        now = await desk.clock()
    return visit.page("relays.html", now, relays=found, queues=stuck_queues(found), queue_prefix=QUEUE)
