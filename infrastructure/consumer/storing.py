"""Storing what arrived: one statement for a whole batch, and the reason for what an outbox cannot hold (T3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import attrs

from outbox_kernel.infrastructure.consumer.reading import Received
from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.outbox.sql import in_schema
from outbox_kernel.infrastructure.outbox.sql.consumed import PRESENT, STORE_CONSUMED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.infrastructure.relay.due_turns import TurnKey
    from outbox_kernel.infrastructure.relay.line import Line

# Each finds what others, who stored some of a batch at the same moment, have committed by then.
ROUNDS_MAX = 3
# What comes of one row, and of the same row each time: a character that the database cannot hold, a constraint or a
# trigger of somebody's own.
_OF_A_ROW = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.RaiseError,
    asyncpg.ProgramLimitExceededError,
)
_WIDTH = len(Received._fields)


class StillMoving(InfrastructureError):
    """Others store and purge the same events, again and again."""


@attrs.frozen
class Stored:
    """What became of a batch: why some cannot be stored, and the turns in which the rest waits for its handlers."""

    refused: dict[UUID, str] = attrs.Factory(dict)
    turns: list[TurnKey] = attrs.Factory(list)


@attrs.frozen
class Storage:
    """The outbox that a queue is emptied into; `now` is for tests."""

    queue: str
    schema: str | None = None
    now: datetime | None = None

    async def store(self, line: Line, events: Sequence[Received]) -> Stored:
        """Store events in their order; of what the server refuses for good, say why, and store the rest."""
        stored = Stored()
        try:
            await self._store_all(line, events, stored)
        except _OF_A_ROW:
            # It does not say which of them.
            for each in events:
                await self._store_alone(line, each, stored)
        return stored

    async def _store_alone(self, line: Line, event: Received, stored: Stored) -> None:
        try:
            await self._store_all(line, [event], stored)
        except _OF_A_ROW as error:
            # Its first line: the details show the row.
            reason = str(error).partition("\n")[0]
            stored.refused[event.event_id] = f"PostgreSQL does not store it ({reason})"

    async def _store_all(self, line: Line, events: Sequence[Received], stored: Stored) -> None:
        left = list(events)
        for _ in range(ROUNDS_MAX):
            found = await self._store(line, left, stored.turns)
            missing = [each for each in left if each.event_id not in found]
            if not missing:
                return
            # What others have stored at this moment is there by now, and gets its deliveries in the next round.
            there = await line.fetch(in_schema(PRESENT, self.schema), [each.event_id for each in missing])
            late = {row["event_id"] for row in there}
            refused = {each.event_id: _taken(each) for each in missing if each.event_id not in late}
            stored.refused.update(refused)
            left = [each for each in left[left.index(missing[0]) :] if each.event_id not in refused]
            if not left:
                return
        raise StillMoving(
            f"{len(left)} events of queue {self.queue!r} are being stored by others: they come again"
        )

    async def _store(self, line: Line, events: Sequence[Received], turns: list[TurnKey]) -> set[UUID]:
        columns = [list(column) for column in zip(*events, strict=True)] or [[] for _ in range(_WIDTH)]
        rows = await line.fetch(in_schema(STORE_CONSUMED, self.schema), *columns, self.queue, self.now)
        turns += [(row["handler"], row["order_key"]) for row in rows if row["handler"] is not None]
        return {row["event_id"] for row in rows}


def _taken(event: Received) -> str:
    return (
        f"another event has number {event.aggregate_version} of {event.aggregate_type} {event.aggregate_id}: two "
        "services count the events of one aggregate, or the database was restored to an earlier state"
    )
