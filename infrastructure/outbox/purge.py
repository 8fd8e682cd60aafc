"""The purge of what is old, a window at a time, as relays and operators do it (R13)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

import asyncpg
import attrs

from outbox_kernel.infrastructure.outbox.limits import (
    GAP_POSITIONS_MAX,
    RETENTION_REST_SECONDS,
    WHOLE_SECONDS,
    WINDOW_PLACES,
    WINDOW_POSITIONS,
    WINDOW_ROWS,
    WINDOWS_EMPTY_MAX,
)
from outbox_kernel.infrastructure.outbox.log_tables import ARRIVALS_EVENT_KEY
from outbox_kernel.infrastructure.outbox.sql.limits import RECEIPT_DAYS_MIN
from outbox_kernel.infrastructure.outbox.sql.retention import (
    PURGE_EVENTS,
    PURGE_PAST,
    PURGE_PROGRESS,
    PURGE_READERS,
    PURGE_RECEIPTS,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

K = TypeVar("K", int, UUID)


@attrs.define
class Purged:
    """How much went."""

    events: int = 0
    deliveries: int = 0
    receipts: int = 0
    places: int = 0
    """Rows of the progress of readers, and of what cursors went with."""


@attrs.define
class Window(Generic[K]):
    """What looking at a window came to."""

    last: K
    """Where the next one begins."""
    kept: K | None
    """The lowest that is old and stays."""
    is_over: bool
    """Whether there is nothing older."""


@attrs.define(eq=False)
class Walk(Generic[K]):
    """Goes over all that is old, window by window, and rests at the end.

    It goes on where it ended the last time: what it has passed may be gone and not cleaned up, and to look at it again
    would cost more by the hour. What is old and stays, a dead letter say, is looked at again by a walk over the whole,
    which is rare.
    """

    window: Callable[[K], Awaitable[Window[K] | None]]
    first: K
    """Where the whole begins: what stands at or below it has gone."""
    before: Callable[[K], K]
    """The key that is next below."""
    due_at: float = 0.0
    whole_at: float = 0.0
    after: K | None = None
    """Where it goes on."""
    _lowest: K | None = None

    async def step(self) -> None:
        """Purge one window, and be due again at once unless that was the last."""
        now = time.monotonic()
        if self.after is None or (self.due_at and now >= self.whole_at):
            self.whole_at, self.after, self._lowest = now + WHOLE_SECONDS, self.first, None
        self.due_at = 0.0
        window = await self.window(self.after)
        if window is None:
            self.due_at = now + RETENTION_REST_SECONDS
            return
        self.after = window.last
        if self._lowest is None:
            self._lowest = window.kept
        if window.is_over:
            self.first = self.after if self._lowest is None else self.before(self._lowest)
            self.due_at = now + RETENTION_REST_SECONDS


@attrs.define(eq=False)
class Chore:
    """Is done now and then, bit by bit."""

    do: Callable[[], Awaitable[bool | None]]
    due_at: float = 0.0

    async def step(self) -> None:
        """Do a bit, and be due again at once unless that was all, or somebody else is at it."""
        self.due_at = 0.0
        if await self.do() is not False:
            self.due_at = time.monotonic() + WHOLE_SECONDS


@attrs.define(eq=False)
class Purge:
    """Purges one window at a time; None: somebody else is at it, or in the way.

    `run` runs a statement in a transaction of its own, under the settings for it.
    """

    run: Callable[..., Awaitable[Any]]
    days: float
    purged: Purged = attrs.Factory(Purged)
    _thinned: dict[UUID, int] = attrs.Factory(dict)
    """Up to which number each reader's progress was looked at."""
    _windows_empty: int = 0

    @property
    def receipt_days(self) -> float:
        """How long receipts are kept."""
        return max(self.days, float(RECEIPT_DAYS_MIN))

    async def events(self, after: int) -> Window[int] | None:
        """Purge events after that position, with their deliveries and receipts."""
        try:
            row = await self.run(
                PURGE_EVENTS,
                after=after,
                span_max=self._span(),
                rows_max=WINDOW_ROWS,
                days=self.days,
                receipt_days=self.receipt_days,
            )
        except (asyncpg.ForeignKeyViolationError, asyncpg.DeadlockDetectedError) as error:
            # A queue brings some of it again at this moment. That stays, and the next look at the window sees it.
            if error.constraint_name not in (ARRIVALS_EVENT_KEY, None):
                raise
            return None
        if row["held"]:
            self.purged.events += row["events"]
            self.purged.deliveries += row["deliveries"]
            has_some = row["events"] or row["kept"] is not None or row["over"]
            self._windows_empty = 0 if has_some else self._windows_empty + 1
        return self._window(row)

    def _span(self) -> int:
        doublings = max(0, self._windows_empty - WINDOWS_EMPTY_MAX)
        return min(WINDOW_POSITIONS << doublings, GAP_POSITIONS_MAX)

    async def receipts(self, after: UUID) -> Window[UUID] | None:
        """Purge receipts after that event's id whose event has gone."""
        return self._window(
            await self.run(PURGE_RECEIPTS, after=after, rows_max=WINDOW_ROWS, days=self.receipt_days)
        )

    def _window(self, row: Any) -> Window[Any] | None:
        if not row["held"]:
            return None
        self.purged.receipts += row["receipts"]
        return Window(row["last"], row["kept"], row["over"])

    async def progress(self) -> bool | None:
        """Thin progress by a window of each reader; return whether that was all."""
        readers, after = list(self._thinned), list(self._thinned.values())
        row = await self.run(
            PURGE_PROGRESS, readers=readers, after=after, rows_max=WINDOW_PLACES, days=self.days
        )
        self._thinned.update(zip(row["readers"], row["last"], strict=True))
        return self._noted(row)

    async def past(self) -> bool | None:
        """Forget some of what cursors went with long ago, likewise."""
        return self._noted(await self.run(PURGE_PAST, rows_max=WINDOW_ROWS, days=self.days))

    async def readers(self) -> bool | None:
        """Forget some of the progress of readers that no cursor knows of, likewise."""
        return self._noted(await self.run(PURGE_READERS, rows_max=WINDOW_ROWS, days=self.days))

    def _noted(self, row: Any) -> bool | None:
        self.purged.places += row["places"]
        return row["over"] if row["held"] else None
