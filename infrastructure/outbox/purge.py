"""The purge of what is old, a window at a time, as relays and operators do it (R13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

import attrs

from outbox_kernel.infrastructure.outbox.limits import (
    GAP_POSITIONS_MAX,
    WINDOW_PLACES,
    WINDOW_POSITIONS,
    WINDOW_ROWS,
    WINDOWS_EMPTY_MAX,
)
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
class Purge:
    """Purges one window at a time; None: somebody else is at it.

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
        row = await self.run(
            PURGE_EVENTS,
            after=after,
            span_max=self._span(),
            rows_max=WINDOW_ROWS,
            days=self.days,
            receipt_days=self.receipt_days,
        )
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
