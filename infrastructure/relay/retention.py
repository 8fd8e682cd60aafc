"""Retention: what was delivered long ago goes, a window now and then, by one relay at a time (R13)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from uuid import UUID

import attrs

from outbox_kernel.infrastructure.outbox.sql import in_schema
from outbox_kernel.infrastructure.outbox.sql.retention import PURGE_EVENTS, PURGE_RECEIPTS, RECEIPT_DAYS_MIN

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.relay.line import Line
    from outbox_kernel.infrastructure.relay.store import Store

WINDOW_ROWS = 2_000
# Of each step, so that purging a million rows takes its time and nobody else's.
WINDOWS_MAX = 5
REST_SECONDS = 60.0
_FIRST_ID = UUID(int=0)


@attrs.define(eq=False)
class Retention:
    """Remembers where the last window ended."""

    store: Store
    days: float | None
    purged: int = 0
    _events_after: int = 0
    _receipts_after: UUID = _FIRST_ID
    _next_at: float = 0.0

    async def step(self, line: Line) -> bool:
        """Purge a few windows, and return whether there is more; when there is nothing older, rest."""
        if self.days is None or time.monotonic() < self._next_at:
            return False
        receipt_days = max(self.days, float(RECEIPT_DAYS_MIN))
        for _ in range(WINDOWS_MAX):
            if await self._purge_events(line, self.days, receipt_days):
                self._next_at = time.monotonic() + REST_SECONDS
                break
        await self._purge_receipts(line, receipt_days)
        return time.monotonic() >= self._next_at

    async def _purge_events(self, line: Line, days: float, receipt_days: float) -> bool:
        """Purge one window; True if there is nothing older, or another relay is at it."""
        arguments = (self._events_after, WINDOW_ROWS, days, receipt_days, self.store.now)
        [row] = await line.fetch(in_schema(PURGE_EVENTS, self.store.schema), *arguments)
        self.purged += row["events"]
        if row["last"] is not None:
            # What stays is looked at again the next time, since it may be delivered by then.
            self._events_after = 0 if row["over"] else row["last"]
        return bool(row["over"]) or not row["held"]

    async def _purge_receipts(self, line: Line, days: float) -> None:
        arguments = (self._receipts_after, WINDOW_ROWS, days, self.store.now)
        [row] = await line.fetch(in_schema(PURGE_RECEIPTS, self.store.schema), *arguments)
        self._receipts_after = _FIRST_ID if row["over"] or row["last"] is None else row["last"]
