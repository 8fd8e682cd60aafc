"""The overview: what needs a person, and how everything goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.dashboard.pages.limits import SUBSCRIPTIONS_MAX
from outbox_kernel.infrastructure.dashboard.pages.windows import window_of
from outbox_kernel.infrastructure.operations.attention import needs
from outbox_kernel.infrastructure.operations.glance import glance
from outbox_kernel.infrastructure.operations.series import WINDOWS, latencies, series, together

if TYPE_CHECKING:
    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.visit import Visit


async def page(visit: Visit) -> Response:
    """Show the whole outbox."""
    window = window_of(visit)
    async with visit.board.looking() as desk:
        seen = await glance(desk)
        went = await series(desk, WINDOWS[window])
        took = await latencies(desk)
        now = await desk.clock()
    rates, lags = together(went)
    shown = sorted(
        (each for each in seen.subscriptions if each.retired_at is None),
        key=lambda each: (-each.dead, -(each.lag_seconds or 0), each.name),
    )
    return visit.page(
        "overview.html",
        now,
        seen=seen,
        needs=needs(seen),
        shown=shown[:SUBSCRIPTIONS_MAX],
        left_out=len(shown) - len(shown[:SUBSCRIPTIONS_MAX]),
        went={each.name: each for each in went},
        took=took,
        rates=rates,
        lately=went[0].steps[-1].seconds if went else None,
        lags=lags,
        moments=[step.at for step in went[0].steps] if went else [],
        window=window,
        windows=list(WINDOWS),
    )
