"""Retention: what was delivered long ago goes, a window now and then, by one relay at a time (R13).

There are walks over the events and over the receipts, each in the order of its key, and chores for what relays have
noted of themselves. A walk goes on where it ended the last time: what it has passed may be gone and not cleaned up, and
to look at it again would cost more by the hour. What is old and stays, a dead letter say, is looked at again by
a walk over the whole, which is rare.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Generic
from uuid import UUID

import asyncpg
import attrs

from outbox_kernel.infrastructure.outbox.purge import K, Purge, Purged, Window
from outbox_kernel.infrastructure.outbox.sql.retention import SETTINGS
from outbox_kernel.infrastructure.relay.limits import RETENTION_REST_SECONDS, WHOLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from outbox_kernel.infrastructure.outbox.sql.named import Statement
    from outbox_kernel.infrastructure.relay.log import Log

_log = logging.getLogger("outbox.relay")

_FIRST_ID = UUID(int=0)


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
            task.due_at = time.monotonic() + RETENTION_REST_SECONDS

    async def _run(self, statement: Statement, **values: Any) -> Any:
        text, _ = self.log.step(statement, is_free=None, **values)

        def given(rows: list[list[asyncpg.Record]]) -> tuple[Any, ...]:
            return self.log.step(statement, is_free=rows[0][0]["is_free"], **values)[1]

        _, [row] = await self.log.line.transact([self.log.step(SETTINGS), (text, given)])
        return row
