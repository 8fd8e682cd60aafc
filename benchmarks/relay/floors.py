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

# All columns as they are, in their order from a place on; and the place written down.
COLUMNS = """
position, event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version, payload::text,
headers::text, occurred_at, created_at, aggregate_key, not_before, source, xid
"""
READ = f"SELECT {COLUMNS} FROM outbox_events WHERE position > $1 ORDER BY position LIMIT {BATCH}"  # noqa: S608 - ours
SAVE = """
INSERT INTO outbox_progress (reader, number, position, server, snapshot) VALUES ($1, $2, $3, 1, pg_current_snapshot())
"""
# Of a table that nobody has analysed the server knows too little to walk the index by itself.
PLANS = {"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_sort": "off"}
READ_ONE = f"SELECT {COLUMNS} FROM outbox_events WHERE event_id = $1"  # noqa: S608 - the same
BOOK = "INSERT INTO bench_bookings (event_id, parcel_id, kilograms) VALUES ($1, $2, $3)"
INSERT_PARCEL = "INSERT INTO bench_weighed_parcels (id, note, version, revision) VALUES ($1, $2, 1, 1)"
INSERT_EVENT = """
INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id,
                           aggregate_version, payload, occurred_at)
VALUES ($1, 'bench.parcel_weighed', 1, 'bench.weighed_parcel', $2, 1, $3, clock_timestamp())
"""
RECEIPT = "INSERT INTO outbox_receipts (event_id, handler) VALUES ($1, 'bench.book')"


@attrs.define(eq=False)
class BareReader:
    """Reads batch after batch, and saves how far it has come."""

    connection: asyncpg.Connection | asyncpg.Pool
    meter: Meter
    name: UUID = attrs.Factory(uuid4)
    position: int = 0
    saved: int = 0

    async def read(self) -> list[asyncpg.Record]:
        """Return the next events, or none."""
        self.meter.begin()
        rows = await self.connection.fetch(READ, self.position)
        if rows:
            self.position = rows[-1]["position"]
        return rows

    async def save(self, rows: list[asyncpg.Record]) -> None:
        """Write down that these are done."""
        self.saved += 1
        await self.connection.execute(SAVE, self.name, self.saved, rows[-1]["position"])
        self.meter.marked(len(rows))


async def bare_drain(meter: Meter, _: asyncio.Event, *, url: str) -> dict[str, Any]:
    """Read on one connection and save the place, without decoding what it reads."""
    connection = await asyncpg.connect(url, server_settings=PLANS)
    reader = BareReader(connection, meter)
    while rows := await reader.read():
        await reader.save(rows)
    await connection.close()
    return {}


async def bare_effects(meter: Meter, _: asyncio.Event, *, url: str, concurrency: int) -> dict[str, Any]:
    """Give each event a transaction of its own with both rows; the next read and the last place go on meanwhile."""
    # Two more than there are workers: the relay reads and moves on by connections of its own as well.
    size = concurrency + 2
    async with asyncpg.create_pool(url, min_size=size, max_size=size, server_settings=PLANS) as pool:
        reader = BareReader(pool, meter)
        rows, saving = await reader.read(), None
        while rows:
            reading = asyncio.create_task(reader.read())
            left = iter(rows)
            await asyncio.gather(*(_book_all(pool, left) for _ in range(concurrency)))
            if saving is not None:
                await saving
            saving = asyncio.create_task(reader.save(rows))
            rows = await reading
        if saving is not None:
            await saving
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
            await reading.fetchrow(READ_ONE, event_id)
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


async def bare_following(meter: Meter, over: asyncio.Event, *, url: str, channel: str) -> dict[str, Any]:
    """Read on and save the place whenever something is heard of."""
    listening = await asyncpg.connect(url)
    connection = await asyncpg.connect(url, server_settings=PLANS)
    heard, reader = asyncio.Event(), BareReader(connection, meter)
    await listening.add_listener(channel, lambda *_: heard.set())

    async def follow() -> None:
        while True:
            await heard.wait()
            heard.clear()
            if rows := await reader.read():
                await reader.save(rows)

    following = asyncio.create_task(follow())
    await over.wait()
    following.cancel()
    await asyncio.wait((following,))
    await listening.close()
    await connection.close()
    return {}


async def bare_steady_commits(
    _: Meter, over: asyncio.Event, *, url: str, payload: str, per_s: int, connections: int
) -> dict[str, Any]:
    """Commit so many events a second, each by itself and with nobody told of it, until told to stop."""

    async def commit_in_turn(number: int) -> None:
        connection = await asyncpg.connect(url)
        due = time.monotonic() + number / per_s
        while not over.is_set():
            await asyncio.sleep(due - time.monotonic())
            async with connection.transaction():
                await connection.execute(INSERT_EVENT, uuid4(), uuid4(), payload)
            due += connections / per_s
        await connection.close()

    await asyncio.gather(*(commit_in_turn(number) for number in range(connections)))
    return {}


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
