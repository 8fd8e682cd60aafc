"""Purge: let go of what has been delivered long ago, a window at a time (R13)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import attrs

from outbox_kernel.infrastructure.outbox.sql.operations import BOUNDS
from outbox_kernel.infrastructure.outbox.sql.retention import PURGE_EVENTS, PURGE_RECEIPTS, RECEIPT_DAYS_MIN

if TYPE_CHECKING:
    from collections.abc import Callable

    import asyncpg

    from outbox_kernel.infrastructure.operations.desk import Desk

WINDOW_EVENTS = 2_000
# A relay's maintenance purges for milliseconds at a time.
TURN_SECONDS = 0.05


@attrs.define
class Purged:
    """How much went."""

    events: int = 0
    deliveries: int = 0
    receipts: int = 0


async def purge(
    desk: Desk,
    older_than_days: float,
    begin: Callable[[int], Callable[[int], None]] = lambda _: lambda _: None,
) -> Purged:
    """Purge delivered events older than that, their deliveries, and receipts that have served their time."""
    purged, receipt_days = Purged(), max(older_than_days, float(RECEIPT_DAYS_MIN))
    bounds = await desk.fetch_one(BOUNDS)
    advance = begin(bounds["last"] - bounds["first"] + 1 if bounds["last"] else 0)
    after = bounds["first"] - 1
    while True:
        row = await _window(desk, PURGE_EVENTS, after, WINDOW_EVENTS, older_than_days, receipt_days)
        purged.events += row["events"]
        purged.deliveries += row["deliveries"]
        purged.receipts += row["receipts"]
        if row["over"]:
            break
        advance(row["last"] - after)
        after = row["last"]
    purged.receipts += await _purge_receipts(desk, receipt_days)
    return purged


async def _purge_receipts(desk: Desk, days: float) -> int:
    after, receipts = UUID(int=0), 0
    while True:
        row = await _window(desk, PURGE_RECEIPTS, after, WINDOW_EVENTS, days)
        receipts += int(row["receipts"])
        if row["over"]:
            return receipts
        after = row["last"]


async def _window(desk: Desk, statement: str, *arguments: object) -> asyncpg.Record:
    """Purge one window, when whoever else is purging has finished his."""
    row = await desk.fetch_one(statement, *arguments, desk.now)
    while not row["held"]:
        await asyncio.sleep(TURN_SECONDS)
        row = await desk.fetch_one(statement, *arguments, desk.now)
    return row
