"""The floors: what bare asyncpg does for the same rows, in the fastest way a careful person would write by hand.

Nothing of ours is imported, so that nothing of ours can slow them down.
"""

from __future__ import annotations

import asyncio
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import attrs

from benchmarks.relay.meter import each_after_a_while

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from benchmarks.relay.meter import Meter

BATCH = 500
KILOGRAMS = Decimal("12.50")

COLUMNS = """
position, event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
payload::text, headers::text, occurred_at, takeovers
"""
CLAIM = f"""
UPDATE outbox_events SET status = 'leased', lease_relay = $1, lease_epoch = 1, updated_at = clock_timestamp()
WHERE position = ANY (ARRAY(
  SELECT position FROM outbox_events WHERE status = 'pending' AND position > $2
  ORDER BY position LIMIT {BATCH} FOR UPDATE SKIP LOCKED))
RETURNING {COLUMNS}
"""  # noqa: S608 - constants of this module
MARK = """
UPDATE outbox_events SET status = 'delivered', processed_at = clock_timestamp(), updated_at = clock_timestamp(),
                         lease_relay = NULL, lease_epoch = NULL
WHERE position = ANY ($1) AND status = 'leased' AND lease_relay = $2
"""
READ = f"SELECT {COLUMNS} FROM outbox_events WHERE event_id = $1"  # noqa: S608 - the same
BOOK = "INSERT INTO bench_bookings (event_id, parcel_id, kilograms) VALUES ($1, $2, $3)"
INSERT_PARCEL = "INSERT INTO bench_weighed_parcels (id, note, version, revision) VALUES ($1, $2, 1, 1)"
INSERT_EVENT = """
INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id,
                           aggregate_version, payload, occurred_at)
VALUES ($1, 'bench.parcel_weighed', 1, 'bench.weighed_parcel', $2, 1, $3, clock_timestamp())
"""
RECEIPT = "INSERT INTO outbox_receipts (event_id, handler) VALUES ($1, 'bench.book')"


@attrs.define(eq=False)
class BareClaimer:
    """Claims batch after batch, and marks them."""

    connection: asyncpg.Connection | asyncpg.Pool
    meter: Meter
    name: UUID = attrs.Factory(uuid4)
    last: int = 0

    async def claim(self) -> list[asyncpg.Record]:
        """Take the next events, or none."""
        self.meter.begin()
        rows = await self.connection.fetch(CLAIM, self.name, self.last)
        self.last = max((row["position"] for row in rows), default=self.last)
        return rows

    async def mark(self, rows: list[asyncpg.Record]) -> None:
        """Mark them."""
        await self.connection.execute(MARK, [row["position"] for row in rows], self.name)
        self.meter.marked(len(rows))


async def bare_drain(meter: Meter, _: asyncio.Event, *, url: str) -> dict[str, Any]:
    """Claim and mark on one connection, without reading what it claims."""
    connection = await asyncpg.connect(url)
    claimer = BareClaimer(connection, meter)
    while rows := await claimer.claim():
        await claimer.mark(rows)
    await connection.close()
    return {}


async def bare_effects(meter: Meter, _: asyncio.Event, *, url: str, concurrency: int) -> dict[str, Any]:
    """Give each event a transaction of its own with both rows; the next claim and the last mark go on meanwhile."""
    # Two more than there are workers: the relay claims and marks on connections of its own as well.
    async with asyncpg.create_pool(url, min_size=concurrency + 2, max_size=concurrency + 2) as pool:
        claimer = BareClaimer(pool, meter)
        rows, marking = await claimer.claim(), None
        while rows:
            claiming = asyncio.create_task(claimer.claim())
            left = iter(rows)
            await asyncio.gather(*(_book_all(pool, left) for _ in range(concurrency)))
            if marking is not None:
                await marking
            marking = asyncio.create_task(claimer.mark(rows))
            rows = await claiming
        if marking is not None:
            await marking
    return {}


async def _book_all(pool: asyncpg.Pool, rows: Iterator[asyncpg.Record]) -> None:
    async with pool.acquire() as connection:
        for row in rows:
            async with connection.transaction():
                await connection.execute(BOOK, row["event_id"], row["aggregate_id"], KILOGRAMS)
                await connection.execute(RECEIPT, row["event_id"])


async def bare_listener(meter: Meter, over: asyncio.Event, *, url: str, channel: str) -> dict[str, Any]:
    """Fetch each event's row when its commit is heard of, and note when it is there."""
    listening, reading = await asyncpg.connect(url), await asyncpg.connect(url)
    heard: asyncio.Queue[str] = asyncio.Queue()
    moments_ns: dict[str, int] = {}

    async def fetch_all() -> None:
        while True:
            event_id = await heard.get()
            await reading.fetchrow(READ, event_id)
            moments_ns[event_id] = time.monotonic_ns()
            meter.marked(1)

    await listening.add_listener(channel, lambda *said: heard.put_nowait(said[-1]))
    fetching = asyncio.create_task(fetch_all())
    await over.wait()
    fetching.cancel()
    await asyncio.wait((fetching,))
    await listening.close()
    await reading.close()
    return {"moments_ns": moments_ns}


async def bare_commits(
    _: Meter, __: asyncio.Event, *, url: str, channel: str, payload: str, commits: int, every: float
) -> dict[str, Any]:
    """Commit one event at a time, with NOTIFY inside the transaction."""
    connection = await asyncpg.connect(url)

    async def commit() -> str:
        event_id, parcel_id = uuid4(), uuid4()
        async with connection.transaction():
            await connection.execute(INSERT_PARCEL, parcel_id, "at the back door")
            await connection.execute(INSERT_EVENT, event_id, parcel_id, payload)
            await connection.execute("SELECT pg_notify($1, $2)", channel, str(event_id))
        return str(event_id)

    moments_ns = await each_after_a_while(commits, every, commit)
    await connection.close()
    return {"moments_ns": moments_ns}
