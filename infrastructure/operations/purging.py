"""Purge: let go of what has been delivered long ago, a window at a time (R13)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from outbox_kernel.infrastructure.operations.limits import TURN_SECONDS
from outbox_kernel.infrastructure.operations.selection import Moment
from outbox_kernel.infrastructure.outbox.purge import Purge, Purged, Window
from outbox_kernel.infrastructure.outbox.sql.retention import EXTENT, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.infrastructure.outbox.sql.named import Statement

K = TypeVar("K", int, UUID)

__all__ = ["Purged", "purge"]


async def purge(
    desk: Desk,
    older_than_days: float,
    begin: Callable[[int], Callable[[int], None]] = lambda _: lambda _: None,
    *,
    is_late: Callable[[], bool] = lambda: False,
) -> Purged:
    """Purge delivered events older than that, their deliveries, and receipts that have served their time.

    Once it `is_late` it stops where it is: another purge begins at what is left.
    """

    async def run(statement: Statement, **values: Any) -> Any:
        async with desk.transaction():
            [settings] = await desk.run(SETTINGS)
            return await desk.run_one(statement, is_free=settings["is_free"], **values)

    purging = Purge(run, older_than_days)
    extent = await desk.run_one(EXTENT)
    after = extent["after"]
    advance = begin(extent["last"] - after)
    while not is_late():
        window = await _at_ones_turn(purging.events, after)
        if window.is_over:
            break
        advance(window.last - after)
        after = window.last
    receipts = await _at_ones_turn(purging.receipts, UUID(int=0))
    while not (receipts.is_over or is_late()):
        receipts = await _at_ones_turn(purging.receipts, receipts.last)
    return purging.purged


async def stored_before(desk: Desk, days: float) -> int:
    """Return at most how many events are older than so many days, delivered or not: by their positions."""
    extent = await desk.run_one(EXTENT)
    first_young = await Moment(ago=timedelta(days=days)).position(desk)
    older: int = min(first_young - 1, extent["last"]) - extent["after"]
    return max(0, older)


async def _at_ones_turn(do: Callable[[K], Awaitable[Window[K] | None]], after: K) -> Window[K]:
    """Purge one window, when whoever else is purging has finished his."""
    window = await do(after)
    while window is None:
        await asyncio.sleep(TURN_SECONDS)
        window = await do(after)
    return window
