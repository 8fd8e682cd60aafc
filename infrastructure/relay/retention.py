"""Retention: what was delivered long ago goes, a window now and then, by one relay at a time (R13).

There are walks over the events and over the receipts, each in the order of its key, and chores for what relays have
noted of themselves. What may go is decided in `outbox/sql/retention`.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import attrs

from outbox_kernel.infrastructure.outbox.limits import RETENTION_REST_SECONDS
from outbox_kernel.infrastructure.outbox.purge import Chore, Purge, Purged, Walk
from outbox_kernel.infrastructure.outbox.sql.retention import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outbox_kernel.infrastructure.outbox.sql.named import Statement
    from outbox_kernel.infrastructure.relay.log import Log

_log = logging.getLogger("outbox.relay")

_FIRST_ID = UUID(int=0)


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
