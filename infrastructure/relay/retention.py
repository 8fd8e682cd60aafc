"""Retention: what was delivered long ago goes, a window now and then, by one relay at a time (R13).

There are walks over the events and over the receipts, each in the order of its key, and chores for what relays have
noted of themselves. A walk goes on where it ended the last time: what it has passed may be gone and not cleaned up, and
to look at it again would cost more by the hour. What is old and stays, a dead letter say, is looked at again by
a walk over the whole, which is rare.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

import asyncpg
import attrs

from outbox_kernel.infrastructure.outbox.sql.retention import (
    PURGE_EVENTS,
    PURGE_PAST,
    PURGE_PROGRESS,
    PURGE_READERS,
    PURGE_RECEIPTS,
    RECEIPT_DAYS_MIN,
    SETTINGS,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from outbox_kernel.infrastructure.outbox.sql.named import Statement
    from outbox_kernel.infrastructure.relay.log import Log

_log = logging.getLogger("outbox.relay")

WINDOW_ROWS = 2_000
# Of the log, so that a window costs no more where all of it is gone.
WINDOW_POSITIONS = 200_000
# Of each reader's progress.
WINDOW_PLACES = 500
REST_SECONDS = 60.0
WHOLE_SECONDS = 3_600.0
_FIRST_ID = UUID(int=0)

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
    """Purges one window at a time; `run` runs a statement in a transaction of its own, under the settings for it."""

    run: Callable[..., Awaitable[Any]]
    days: float
    purged: Purged = attrs.Factory(Purged)
    _thinned: dict[UUID, int] = attrs.Factory(dict)
    """Up to which number each reader's progress was looked at."""

    @property
    def receipt_days(self) -> float:
        """How long receipts are kept."""
        return max(self.days, float(RECEIPT_DAYS_MIN))

    async def events(self, after: int) -> Window[int] | None:
        """Purge events after that position; None: somebody else is at it."""
        row = await self.run(
            PURGE_EVENTS,
            after=after,
            span_max=WINDOW_POSITIONS,
            rows_max=WINDOW_ROWS,
            days=self.days,
            receipt_days=self.receipt_days,
        )
        if not row["held"]:
            return None
        self.purged.events += row["events"]
        self.purged.deliveries += row["deliveries"]
        self.purged.receipts += row["receipts"]
        return Window(row["last"], row["kept"], row["over"])

    async def receipts(self, after: UUID) -> Window[UUID] | None:
        """Purge receipts after that event's id whose event has gone; None: somebody else is at it."""
        row = await self.run(PURGE_RECEIPTS, after=after, rows_max=WINDOW_ROWS, days=self.receipt_days)
        if not row["held"]:
            return None
        self.purged.receipts += row["receipts"]
        return Window(row["last"], row["kept"], row["over"])

    async def progress(self) -> bool | None:
        """Thin progress by a window of each reader; return whether that was all; None: somebody else is at it."""
        row = await self.run(
            PURGE_PROGRESS,
            readers=list(self._thinned),
            after=list(self._thinned.values()),
            rows_max=WINDOW_PLACES,
            days=self.days,
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


@attrs.define(eq=False)
class Walk(Generic[K]):
    """Goes over all that is old, window by window, and rests at the end."""

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
            self.due_at = now + REST_SECONDS
            return
        self.after = window.last
        if self._lowest is None:
            self._lowest = window.kept
        if window.is_over:
            self.first = self.after if self._lowest is None else self.before(self._lowest)
            self.due_at = now + REST_SECONDS


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
class Retention:
    """What a relay purges; `days` is None where history is kept for ever."""

    log: Log
    days: float | None
    purged: Purged = attrs.Factory(Purged)
    tasks: Sequence[Walk[int] | Walk[UUID] | Chore] = ()

    def __attrs_post_init__(self) -> None:
        """Begin with everything."""
        if self.days is None:
            return
        purge = Purge(self._run, self.days, self.purged)
        self.tasks = (
            Walk(purge.events, 0, lambda position: position - 1),
            Walk(purge.receipts, _FIRST_ID, lambda event_id: UUID(int=event_id.int - 1)),
            *map(Chore, (purge.progress, purge.past, purge.readers)),
        )

    async def step(self) -> bool:
        """Purge one window of what is due; False: there is nothing for now."""
        now = time.monotonic()
        for task in self.tasks:
            if task.due_at <= now:
                await self._do(task)
                return True
        return False

    async def _do(self, task: Walk[int] | Walk[UUID] | Chore) -> None:
        try:
            await task.step()
        except (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError) as error:
            # Somebody holds a row that is to go, or there is too much that is not cleaned up.
            _log.info("the purge waits: %s", error, extra={"action": "purge.waits"})
            task.due_at = time.monotonic() + REST_SECONDS

    async def _run(self, statement: Statement, **values: Any) -> Any:
        text, _ = self.log.step(statement, is_free=None, **values)

        def given(rows: list[list[asyncpg.Record]]) -> tuple[Any, ...]:
            return self.log.step(statement, is_free=rows[0][0]["is_free"], **values)[1]

        _, [row] = await self.log.line.transact([self.log.step(SETTINGS), (text, given)])
        return row
