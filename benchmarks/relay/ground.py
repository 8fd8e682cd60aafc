"""The ground of all measurements: a database with the product's own tables, and events in it by SQL."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

import attrs

from benchmarks.databases import bare_connection, dsn_of
from benchmarks.relay.parcels import AGGREGATE_TYPE, EVENT_TYPE, bench_metadata, weighed
from benchmarks.relay.sizes import AGGREGATES
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.relay.settings import CHANNEL
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel import serialize_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

LOOK_SECONDS = 0.02
SILENCE_SECONDS_MAX = 120.0

# Event ids are UUIDv7 as the kernel's are: random ones would make every index entry touch a page of its own.
FILL = """
INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
                           payload, occurred_at)
SELECT event_id, $1, 1, $2, parcel_id, number / $5::int + 1,
       $3::jsonb || jsonb_build_object('event_id', event_id, 'parcel', parcel_id), clock_timestamp()
FROM (
  SELECT number, md5((number % $5::int)::text)::uuid AS parcel_id,
         (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7'
          || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid AS event_id
  FROM generate_series($4::int, $4::int + $6::int - 1) AS number
) AS event
"""

# As a transaction that took its position long ago and commits now.
COMMIT_LATE = """
INSERT INTO outbox_events (position, event_id, event_type, event_version, aggregate_type, aggregate_id,
                           aggregate_version, payload, occurred_at)
OVERRIDING SYSTEM VALUE
VALUES ($1, $2, $3, 1, $4, $5, 1, $6, clock_timestamp())
"""

TABLES = (
    "outbox_events",
    "outbox_arrivals",
    "outbox_deliveries",
    "outbox_receipts",
    "outbox_subscriptions",
    "outbox_relays",
    "outbox_cursors",
    "outbox_cursors_past",
    "outbox_progress",
    "bench_bookings",
    "bench_weighed_parcels",
)
# What a relay may write of what it delivers; each row that is new, changed or gone stands in one of two answers alone.
WRITTEN = """
SELECT tableoid, ctid::text, xmin::text FROM outbox_deliveries
UNION ALL SELECT tableoid, ctid::text, xmin::text FROM outbox_progress
"""


@attrs.frozen
class Ground:
    """One database to measure in."""

    url: str
    connection: asyncpg.Connection

    @property
    def dsn(self) -> str:
        """Its address as asyncpg reads it."""
        return dsn_of(self.url)

    async def empty(self) -> None:
        """Leave nothing of what was measured before."""
        await self.connection.execute(f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY")

    async def fill(self, events: int, *, aggregates: int = AGGREGATES, first: int = 0) -> None:
        """Add events, the aggregates taking turns; `first` counts on where an earlier call has ended."""
        await self.connection.execute(
            FILL, EVENT_TYPE, AGGREGATE_TYPE, stored_payload(), first, aggregates, events
        )

    async def renew(self, events: int, *, aggregates: int = AGGREGATES) -> None:
        """Have just so many events in an outbox as good as new, which nobody has analysed."""
        await self.empty()
        await self.fill(events, aggregates=aggregates)

    async def vacuum(self) -> None:
        """Clean up as autovacuum would, but for the statistics: no statement is to depend on them."""
        await self.connection.execute(f"VACUUM {', '.join(TABLES)}")

    async def add(self, events: int, first: int) -> None:
        """Add events in one transaction, and wake the relay with it."""
        async with self.connection.transaction():
            await self.fill(events, first=first)
            await self.notify(CHANNEL)

    async def take_position(self) -> int:
        """Take a position as a writer does that commits much later."""
        return int(
            await self.connection.fetchval(
                "SELECT nextval(pg_get_serial_sequence('outbox_events', 'position'))"
            )
        )

    async def commit_late(self, position: int) -> None:
        """Commit an event at that position."""
        event = weighed(UUID(int=position))
        async with self.connection.transaction():
            await self.connection.execute(
                COMMIT_LATE,
                *(position, event.event_id, EVENT_TYPE, AGGREGATE_TYPE, event.parcel, serialize_event(event)),
            )
            await self.notify(CHANNEL)

    async def notify(self, channel: str, said: str = "") -> None:
        """Say something to who listens."""
        await self.connection.execute("SELECT pg_notify($1, $2)", channel, said)

    async def dead_rows(self) -> int:
        """Count the dead rows of the events' table, once whoever may have made some has ended."""
        return int(
            await self.ask("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'outbox_events'")
        )

    async def rows_of_progress(self) -> set[tuple[Any, ...]]:
        """Return each row of deliveries and progress, as it was written last."""
        return {tuple(row) for row in await self.connection.fetch(WRITTEN)}

    async def until(self, query: str) -> None:
        """Wait until a query says yes."""
        async with asyncio.timeout(SILENCE_SECONDS_MAX):
            while not await self.ask(query):  # noqa: ASYNC110 - another process decides
                await asyncio.sleep(LOOK_SECONDS)

    async def ask(self, query: str, *arguments: Any) -> Any:
        """Return one value."""
        return await self.connection.fetchval(query, *arguments)

    async def written_bytes(self, since: str | None = None) -> Any:
        """Return where the write-ahead log ends, or how much it has grown since."""
        if since is None:
            return await self.ask("SELECT pg_current_wal_insert_lsn()::text")
        return await self.ask("SELECT (pg_current_wal_insert_lsn() - $1::text::pg_lsn)::bigint", since)


def stored_payload() -> str:
    """Return what is stored of such an event."""
    return serialize_event(weighed(UUID(int=0)))


@asynccontextmanager
async def prepared(url: str) -> AsyncIterator[Ground]:
    """Make the tables in an empty database, and yield it."""
    engine = create_engine(url)
    try:
        await migrate(engine, Settings(contexts=()))
        async with engine.begin() as connection:
            await connection.run_sync(bench_metadata.create_all)
            for table in TABLES:
                # What the server does by itself would fall into one measurement or another.
                await connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    finally:
        await engine.dispose()
    bare = await bare_connection(url)
    try:
        yield Ground(url, bare)
    finally:
        await bare.close()


@asynccontextmanager
async def transaction_held(url: str) -> AsyncIterator[None]:
    """Hold a transaction open as a stranger does who has forgotten it: with a snapshot, and a number of its own."""
    connection = await bare_connection(url)
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetchval("SELECT count(*), pg_current_xact_id() FROM outbox_events")
            yield
    finally:
        await connection.close()
