"""Storing what arrived: one statement for a whole batch, and the reason for what an outbox cannot hold (T3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg
import attrs

from outbox_kernel.infrastructure.brokers.received import Received
from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.inbox.limits import ROUNDS_MAX
from outbox_kernel.infrastructure.outbox.log_tables import ARRIVALS_EVENT_KEY, ARRIVALS_KEY
from outbox_kernel.infrastructure.outbox.sealing.requiring import in_force, required
from outbox_kernel.infrastructure.outbox.sealing.writing import Sealing, asks
from outbox_kernel.infrastructure.outbox.sql.arrivals import STORE
from outbox_kernel.infrastructure.outbox.sql.named import arguments, arrays
from outbox_kernel.infrastructure.outbox.sql.subject_keys import TAKE_KEYS
from outbox_kernel.infrastructure.outbox.tables import EVENT_ID_KEY, QUEUES_STREAM_KEY
from outbox_kernel.kernel.errors import ConcurrencyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outbox_kernel.infrastructure.master_keys import MasterKeys
    from outbox_kernel.infrastructure.outbox.own_connection import Line

# What comes of one row, and of the same row each time: a character that the database cannot hold, a constraint or a
# trigger of somebody's own.
_OF_A_ROW = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.RaiseError,
    asyncpg.ProgramLimitExceededError,
)
_AT_THIS_MOMENT = (EVENT_ID_KEY, ARRIVALS_KEY, ARRIVALS_EVENT_KEY)


class StillMoving(InfrastructureError):
    """Others store and purge the same event, again and again."""


@attrs.frozen
class Storage:
    """The outbox that a queue is emptied into."""

    queue: str
    schema: str | None = None
    master_keys: MasterKeys | None = attrs.field(default=None, converter=in_force)

    async def store(self, line: Line, events: Sequence[Received]) -> dict[int, str]:
        """Store events in their order; return why some of them, by their index, are refused for good."""
        try:
            return await self._store(line, events)
        except (*_OF_A_ROW, asyncpg.DeadlockDetectedError):
            # It does not say which of them. One by one, none is held while another is waited for.
            found = [await self._store_alone(line, each) for each in events]
            return {index: reason for index, reason in enumerate(found) if reason is not None}

    async def _store_alone(self, line: Line, event: Received) -> str | None:
        for _ in range(ROUNDS_MAX):
            try:
                return (await self._store(line, [event])).get(0)
            except _OF_A_ROW as error:
                if error.constraint_name == QUEUES_STREAM_KEY:
                    return _number_taken(event)
                if error.constraint_name not in _AT_THIS_MOMENT:
                    # Its first line: the details show the row.
                    return f"PostgreSQL does not store it ({str(error).partition(chr(10))[0]})"
        raise StillMoving(
            f"event {event.event_id} of queue {self.queue!r} is being stored by others: it comes again"
        )

    async def _store(self, line: Line, events: Sequence[Received]) -> dict[int, str]:
        if any(map(asks, events)):
            rows = await self._store_sealed(line, events)
        else:
            text, values = self._storing(events)
            rows = await line.fetch(text, *values)
        return {row["number"] - 1: _ID_TAKEN for row in rows}

    async def _store_sealed(self, line: Line, events: Sequence[Received]) -> list[asyncpg.Record]:
        """Store them with what is sensitive in them sealed, by keys that nobody destroys before that has committed."""
        text, names = TAKE_KEYS.for_line(self.schema)
        storing, _ = self._storing([])
        for _ in range(ROUNDS_MAX):
            sealing = Sealing(events, required(self.master_keys))

            def sealed(
                rows: list[list[asyncpg.Record]], sealing: Sealing[Received] = sealing
            ) -> tuple[Any, ...]:
                sealing.take(rows[0][0]["keys"])
                return self._storing(sealing.sealed())[1]

            keys = tuple(arguments(names, sealing.asked()))
            try:
                return (await line.transact([(text, keys), (storing, sealed)]))[1]
            except ConcurrencyError:
                continue  # somebody has made a key that this one did not see
        raise StillMoving(
            f"keys of subjects of queue {self.queue!r} are being made by others: its events come again"
        )

    def _storing(self, events: Sequence[Received]) -> tuple[str, tuple[Any, ...]]:
        text, names = STORE.for_line(self.schema)
        values = {"queue": self.queue, **arrays(Received._fields, events)}
        return text, tuple(arguments(names, values))


_ID_TAKEN = (
    "another event has its id, of another type, aggregate or payload: two were sent under one id, or one of them was "
    "changed on its way"
)


def _number_taken(event: Received) -> str:
    return (
        f"another event has number {event.aggregate_version} of {event.aggregate_type} {event.aggregate_id}: two "
        "services count the events of one aggregate, or the database was restored to an earlier state"
    )
