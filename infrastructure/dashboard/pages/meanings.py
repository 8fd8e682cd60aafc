"""What the words mean that the pages show on badges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.dashboard.meanings import GROUPS

if TYPE_CHECKING:
    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.visit import Visit


async def page(visit: Visit) -> Response:
    """Show each word with its sentence."""
    async with visit.board.looking() as desk:
        now = await desk.clock()
    return visit.page("words.html", now, groups=GROUPS)
