"""An outbox as a year-old service has it: millions of events, a week of progress, a hundred thousand dead letters."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from benchmarks.databases import bare_connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import asyncpg

    from benchmarks.dashboard.sizes import Sizes

# So many rows are written in one statement, by so many connections side by side.
STRETCH_ROWS = 250_000
WRITERS = 2
DAYS = 6
HANDLERS = (
    "billing.Charge",
    "billing.Refund",
    "mail.Welcome",
    "mail.Receipt",
    "search.Index",
    "stock.Reserve",
)
PUBLISHERS = ("messaging", "warehouse")
DYING = HANDLERS[0]

# Ids that go up with time, as those of the kernel do. Every fourth event has been caused by one a little before it.
_ID = "(lpad(to_hex({number}::bigint + 1700000000000), 12, '0') || '7' || substr(md5(({number})::text), 14))::uuid"
EVENTS = f"""
INSERT INTO outbox_events (position, event_id, event_type, event_version, aggregate_type, aggregate_id,
                           aggregate_version, payload, headers, occurred_at, created_at) OVERRIDING SYSTEM VALUE
SELECT number, {_ID.format(number="number")}, (ARRAY['order.placed', 'order.paid', 'order.shipped', 'invoice.sent',
                                             'customer.joined', 'stock.moved'])[1 + number % 6], 1,
       (ARRAY['order', 'customer'])[1 + number % 2], md5((number % $3)::text)::uuid, number / $3 + 1,
       jsonb_build_object('order_id', number, 'note', 'the quick brown fox ' || md5(number::text),
                          'total', number % 997, 'lines', jsonb_build_array(number % 7, number % 11)),
       CASE WHEN number % 4 = 3
            THEN jsonb_build_object('causation_id', {_ID.format(number="number - 3")}, 'request_id', md5(number::text))
            ELSE jsonb_build_object('request_id', md5(number::text)) END,
       at, at
FROM (SELECT number, clock_timestamp() - interval '1 day' * {DAYS} * (1 - number::float8 / $4) AS at
      FROM generate_series($1::bigint, $2::bigint) AS number) AS event
"""  # noqa: S608 - the words are ours
GO_ON_BEHIND = "SELECT setval(pg_get_serial_sequence('outbox_events', 'position'), $1)"

SUBSCRIPTIONS = """
INSERT INTO outbox_subscriptions (name, kind, patterns, since)
SELECT name, kind, CASE kind WHEN 'publisher' THEN '{order.*,stock.*}'::text[]
                   ELSE ARRAY['order.*', 'invoice.*', 'customer.*'] END,
       clock_timestamp() - interval '30 days'
FROM unnest($1::text[], $2::text[]) AS carried (name, kind)
"""
# A place each few seconds, behind what was there; the last has passed all but the newest thousand.
PROGRESS = f"""
WITH reader AS (
  INSERT INTO outbox_cursors (subscription, shard, reader)
  SELECT name, shard, md5(name)::uuid FROM outbox_subscriptions, generate_series(0, 31) AS shard RETURNING subscription
)
INSERT INTO outbox_progress (reader, number, position, recorded_at, server, events, snapshot)
SELECT md5(name)::uuid, number, $1::bigint * number / $2,
       clock_timestamp() - interval '1 day' * {DAYS} * (1 - number::float8 / $2),
       1, $1::bigint * number / $2 * 2 / 3, pg_current_snapshot()
FROM (SELECT DISTINCT subscription AS name FROM reader) AS named, generate_series(0, $2::bigint) AS number
"""  # noqa: S608 - the words are ours
RELAYS = """
INSERT INTO outbox_relays (id, epoch, expires_at, process_id, host, code_version, abilities, patterns)
SELECT md5(number::text)::uuid, 1, clock_timestamp() + interval '1 day', 100 + number, 'host-' || number, '1.4.2',
       (SELECT jsonb_object_agg(name, '{"order.*": 1, "invoice.*": 1, "customer.*": 1, "stock.*": 1}'::jsonb)
        FROM outbox_subscriptions), NULL
FROM generate_series(1, 4) AS number
"""
# What has failed lately: the dead of many kinds, what stands behind them, and what succeeded at last.
DELIVERIES = """
INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status, attempts, error_message, updated_at)
SELECT event_id, position, $1, aggregate_type || ':' || aggregate_id, $2, 10,
       CASE WHEN $2 = 'done' THEN NULL ELSE (ARRAY[
         'TimeoutError: handler took longer than 30 s', 'PaymentRefused: card of customer ' || position || ' refused',
         'KeyError: ''customer_' || position || '''', 'IntegrityError: duplicate key ' || event_id]
       )[1 + position / $3 % 4] END,
       created_at + interval '20 minutes'
FROM outbox_events WHERE position % $3 = $4 ORDER BY position LIMIT $5
"""
# All but the primary key, whose entries come in order. To sort ten million once is a tenth of inserting each. What
# other tables say by one of them comes first.
INDEXES = """
SELECT 'ALTER TABLE ' || conrelid::regclass || ' DROP CONSTRAINT ' || quote_ident(conname) AS drop,
       'ALTER TABLE ' || conrelid::regclass || ' ADD CONSTRAINT ' || quote_ident(conname) || ' '
       || pg_get_constraintdef(oid) AS create
FROM pg_constraint WHERE confrelid = 'outbox_events'::regclass
UNION ALL
SELECT coalesce('ALTER TABLE outbox_events DROP CONSTRAINT ' || quote_ident(made.conname),
                'DROP INDEX ' || index.indexrelid::regclass) AS drop,
       coalesce('ALTER TABLE outbox_events ADD CONSTRAINT ' || quote_ident(made.conname) || ' '
                || pg_get_constraintdef(made.oid), pg_get_indexdef(index.indexrelid)) AS create
FROM pg_index AS index
LEFT JOIN pg_constraint AS made ON made.conindid = index.indexrelid AND made.conrelid = index.indrelid
WHERE index.indrelid = 'outbox_events'::regclass AND NOT index.indisprimary
"""
SORTED_IN_MEMORY = "SET maintenance_work_mem = '1GB'"
NOTHING_WAITS_FOR_THE_DISK = "SET synchronous_commit = off"
TABLES = (
    "outbox_events",
    "outbox_deliveries",
    "outbox_receipts",
    "outbox_subscriptions",
    "outbox_cursors",
    "outbox_cursors_past",
    "outbox_progress",
    "outbox_relays",
)


async def fill(url: str, sizes: Sizes) -> None:
    """Fill a migrated outbox."""
    async with AsyncExitStack() as stack:
        writers = [await stack.enter_async_context(_connection(url)) for _ in range(WRITERS)]
        connection = writers[0]
        indexes = await connection.fetch(INDEXES)
        for index in indexes:
            await connection.execute(index["drop"])
        await _fill_events(writers, sizes)
        for index in reversed(indexes):
            await connection.execute(index["create"])
        await _fill_relays(connection, sizes)
        await _fill_deliveries(connection, sizes)
        for table in TABLES:
            await connection.execute(f"VACUUM (ANALYZE) {table}")


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await bare_connection(url)
    try:
        await connection.execute(SORTED_IN_MEMORY)
        await connection.execute(NOTHING_WAITS_FOR_THE_DISK)
        yield connection
    finally:
        await connection.close()


async def _fill_events(writers: Sequence[asyncpg.Connection], sizes: Sizes) -> None:
    """Write them in stretches, side by side; each has its place in the log, whoever is first."""
    aggregates = max(sizes.events // 20, 1)
    firsts = iter(range(1, sizes.events + 1, STRETCH_ROWS))

    async def write(connection: asyncpg.Connection) -> None:
        for first in firsts:
            last = min(first + STRETCH_ROWS - 1, sizes.events)
            await connection.execute(EVENTS, first, last, aggregates, sizes.events)

    await asyncio.gather(*map(write, writers))
    await writers[0].execute(GO_ON_BEHIND, sizes.events)


async def _fill_relays(connection: asyncpg.Connection, sizes: Sizes) -> None:
    await connection.execute(
        "INSERT INTO outbox_servers (identifier, floor) SELECT system_identifier::text, 0 "
        "FROM pg_control_system()"
    )
    names = [*HANDLERS, *PUBLISHERS]
    kinds = ["handler"] * len(HANDLERS) + ["publisher"] * len(PUBLISHERS)
    await connection.execute(SUBSCRIPTIONS, names, kinds)
    await connection.execute(PROGRESS, sizes.events - sizes.pending, sizes.places)
    await connection.execute(RELAYS)


async def _fill_deliveries(connection: asyncpg.Connection, sizes: Sizes) -> None:
    each = max(sizes.events // sizes.dead, 1)
    await connection.execute(DELIVERIES, DYING, "dead", each, 0, sizes.dead)
    for handler, status in (("mail.Welcome", "waiting"), ("search.Index", "done"), ("stock.Reserve", "dead")):
        await connection.execute(DELIVERIES, handler, status, each * 10, 0, sizes.dead // 10)
