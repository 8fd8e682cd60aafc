"""Rows that are written past capture, with plain SQL, as others' programs do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import asyncpg

COUNTER = "INSERT INTO faults_counters (id, n, version) VALUES ($1, $2, $2)"
EVENT = """
INSERT INTO outbox_events
  (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version, payload, occurred_at)
VALUES ($1, $2, 1, $3, $4, $5, $6::text::jsonb, $7::text::timestamptz)
"""
COUNTED, NOW = "faults.counted", "2026-01-01T00:00:00+00:00"


def payload_of(event_id: UUID, n: int, moment: str = NOW) -> str:
    """What capture would have stored."""
    return json.dumps({"event_id": str(event_id), "occurred_at": moment, "n": n, "spell": "", "note": ""})


async def write_step(
    connection: asyncpg.Connection, counter: UUID, n: int, *, payload: str | None = None, moment: str = NOW
) -> UUID:
    """Write a counter's event; the row of the counter is another matter."""
    event_id = uuid4()
    written = payload or payload_of(event_id, n, moment)
    await connection.execute(EVENT, event_id, COUNTED, "faults.counter", counter, n, written, moment)
    return event_id


async def write_unheard_of(connection: asyncpg.Connection, moment: str) -> None:
    """Write an event of a type that nobody knows, of no aggregate."""
    event_id = uuid4()
    await connection.execute(
        EVENT, event_id, "faults.unheard_of", None, None, None, payload_of(event_id, 1), moment
    )


@asynccontextmanager
async def late(connection: asyncpg.Connection) -> AsyncIterator[None]:
    """A counter's first step, inserted at once and committed at the end: later events are there before it."""
    async with connection.transaction():
        counter = uuid4()
        await connection.execute(COUNTER, counter, 1)
        await write_step(connection, counter, 1)
        yield
