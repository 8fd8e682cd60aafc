"""Reading the log on from a place, in one statement and so under one snapshot (R1, R2b)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.outbox.sql.fragments import EVENT, NO_EVENT, NOW, SHARD, SIZE
from outbox_kernel.infrastructure.outbox.sql.named import Statement

if TYPE_CHECKING:
    from collections.abc import Iterable

# What each read asks of what it brings, and its own report, which is the last row.
#
# - `stretch` is what is looked at ahead, however little of it is for whom it is read: what others are for may be
#   millions.
# - `bytes` is the sum so far: what comes after the limit is left for the next read. A payload that is stored compressed
#   counts as many times larger, as lists of rows that are all alike are: to measure it, each would have to be read.
# - `behind` tells in the usual case that nobody has anything unsettled. Where a long snapshot keeps what is settled
#   from being cleaned up, to find that out is dearer than to ask for each aggregate. Two looks into the index: of one
#   for either key the planner makes a filter, and goes through all that a handler has unsettled.
_UNSETTLED = """(
           SELECT true FROM {outbox_deliveries} AS delivery WHERE NOT settled AND handler = name
             AND order_key = <key> AND delivery.position <= event.position LIMIT 1)"""
_TOLD = """
WITH stretch AS MATERIALIZED (
  SELECT <last> AS last FROM (<looked at>) AS looked_at
)<late>, behind AS MATERIALIZED (
  SELECT name FROM unnest((SELECT :ordered::text[])) AS names (name)
  WHERE <is dear>
     OR (SELECT true FROM {outbox_deliveries} WHERE NOT settled AND handler = name LIMIT 1)
)
SELECT <event>, bytes,
       CASE WHEN EXISTS (SELECT FROM behind) THEN (
         SELECT array_agg(name) FROM behind
         WHERE coalesce(<waits as its aggregate>, <waits by itself>)
       ) END AS unsettled,
       NULL::text AS report
FROM (<found>) AS event
UNION ALL
SELECT <no event>, NULL, NULL, json_build_object(
  'snapshot', pg_current_snapshot()::text,
  'held', <held>,
  'revision', <revision>,
  'scanned', (SELECT last FROM stretch),
  'late_after', <late after>)::text
"""
_IS_DEAR = "pg_stat_get_dead_tuples('{outbox_deliveries}'::regclass) > 5000"
_HELD = f"EXISTS (SELECT FROM {{outbox_relays}} WHERE id = :relay AND epoch = :epoch AND expires_at > {NOW})"
_REVISION = "(SELECT coalesce(sum(revision), 0) FROM {outbox_subscriptions})"
_MEASURED = """
  SELECT * FROM (
    SELECT *, sum(<size>) OVER (ORDER BY position ROWS UNBOUNDED PRECEDING) AS bytes
    FROM (SELECT * FROM (<entries>) AS next ORDER BY position LIMIT :events_max) AS ahead) AS measured
  WHERE bytes - <size> < :bytes_max
"""

# Read on from a place. Each kind of late entry is a branch of its own: with OR between them the planner filters the
# whole index. Where there is too much that is late for one read, it brings nothing, and says behind which position all
# of that stands.
#
# What is late is in the order of transactions, which only their index has, and sorts are turned off: so nothing makes
# the planner prefer the index of positions, nearly all of which are below. It would, where statistics tell of few rows
# since the others have gone, and these were walked all the same until they are cleaned up. For one running transaction
# it is a range, since the planner leaves an order by what is equal.
_LATE = """
, late AS MATERIALIZED (
  SELECT *, NULL::bigint AS bytes FROM (<all late>) AS found LIMIT :late_max::bigint + 1
), much AS MATERIALIZED (
  SELECT count(*) > :late_max OR coalesce(sum(<size>), 0) > :late_bytes_max::bigint AS is_late FROM late
)"""
_LATE_AND_AHEAD = f"""
  SELECT * FROM late WHERE NOT (SELECT is_late FROM much)
  UNION ALL
  SELECT * FROM ({_MEASURED}) AS ahead WHERE NOT (SELECT is_late FROM much)
"""  # noqa: S608 - the words are ours
_READ = (
    _TOLD.replace("<late>", _LATE)
    .replace("<found>", _LATE_AND_AHEAD)
    .replace("<late after>", "CASE WHEN (SELECT is_late FROM much) THEN least(<lowest late>) - 1 END")
)
_LOOKED_AT = """
SELECT max(position) AS last, count(*) = :look_max AS is_full FROM (
  SELECT position FROM <table> WHERE position > :position ORDER BY position LIMIT :look_max) AS next
"""
_AHEAD = """(
SELECT * FROM <entries of (SELECT * FROM <table> WHERE position > :position ORDER BY position LIMIT :look_max)>
WHERE <ours> AND position <= (SELECT last FROM stretch) ORDER BY position LIMIT :events_max)
"""
_RUNNING = "pg_snapshot_xip(:snapshot::text::pg_snapshot) AS running"
_IS_BELOW = "position <= :position AND position > :floor::bigint"
_OF_RUNNING = f"xid >= running AND xid <= running AND {_IS_BELOW}"
# None that this server has yet to begin: a row that says so was written past us, and would come with each read. A
# former server's ids may be above all of this one's. What is here of it is committed, and `late_snapshot` sees all.
_BEGUN_HERE = "pg_snapshot_xmax(pg_current_snapshot())"
_BEGUN = f"coalesce(pg_snapshot_xmax(:late_snapshot::text::pg_snapshot), {_BEGUN_HERE})"
_OF_YOUNGER = f"xid >= pg_snapshot_xmax(:snapshot::text::pg_snapshot) AND xid < {_BEGUN} AND {_IS_BELOW}"
_KINDS_OF_LATE = (
    f"""
SELECT late.* FROM {_RUNNING} CROSS JOIN LATERAL (
SELECT * FROM <entries of <table>>
WHERE {_OF_RUNNING} AND <ours> ORDER BY xid, position LIMIT :late_max::bigint + 1) AS late
""",  # noqa: S608 - the words are ours
    f"""(
SELECT * FROM <entries of <table>>
WHERE {_OF_YOUNGER} AND <ours> ORDER BY xid, position LIMIT :late_max::bigint + 1)
""",  # noqa: S608 - the words are ours
)
_LOWEST_LATE = (
    f"""(SELECT min(lowest.position) FROM {_RUNNING} CROSS JOIN LATERAL (
      SELECT position FROM <table> WHERE {_OF_RUNNING} ORDER BY xid, position LIMIT 1) AS lowest)""",  # noqa: S608
    f"(SELECT min(position) FROM (SELECT * FROM <table> WHERE {_OF_YOUNGER} ORDER BY xid, position) AS late)",  # noqa: S608
)

# Read on through what was late for a place when another snapshot was taken, by position and up to a batch at a time:
# of what stands at or below the place, what the one did not see, and the other does.
_READ_LATE = _TOLD.replace("<late>", "").replace("<found>", _MEASURED).replace("<late after>", "NULL")
_LOOKED_AT_BELOW = """
SELECT max(position) AS last, count(*) = :look_max AS is_full FROM (
  SELECT position FROM <table> WHERE position > :late_position AND position <= :position
  ORDER BY position LIMIT :look_max) AS next
"""
_BELOW = """(
SELECT * FROM <entries of (
  SELECT * FROM <table> WHERE position > :late_position AND position <= :position ORDER BY position LIMIT :look_max)>
WHERE position > :floor AND NOT pg_visible_in_snapshot(xid, :snapshot::text::pg_snapshot)
  AND pg_visible_in_snapshot(xid, :late_snapshot::text::pg_snapshot) AND <ours>
  AND position <= coalesce((SELECT last FROM stretch), :position) ORDER BY position LIMIT :events_max)
"""

# An arrival is read with the event that it is of. By LATERAL with a LIMIT, which no planner turns into a join of all.
_OF_ENTRY = "position, xid, source, event_id, event_type, aggregate_id"
_OF_EVENT = (
    "occurred_at, created_at, event_version, aggregate_type, aggregate_version, payload, headers, not_before, "
    "aggregate_key"
)
_ARRIVED = ", ".join(f"arrival.{column}" for column in _OF_ENTRY.split(", "))
_EVENTS = f"(SELECT {_OF_ENTRY}, {_OF_EVENT} FROM <rows> AS event) AS entry"  # noqa: S608 - ours
_ARRIVALS = (
    f"(SELECT {_ARRIVED}, event.* FROM <rows> AS arrival CROSS JOIN LATERAL ("  # noqa: S608 - ours
    f"SELECT {_OF_EVENT} FROM {{outbox_events}} AS event WHERE event.event_id = arrival.event_id LIMIT 1"
    ") AS event) AS entry"
)
_ENTRIES = {"{outbox_events}": _EVENTS, "{outbox_arrivals}": _ARRIVALS}


@cache
def read(*, queue: bool, types: bool, shards: bool) -> Statement:
    """Return the statement that reads on: what is written here or a queue brings, of all types and shards or some."""
    tables = _tables(queue=queue)
    late = [_of(table, kind) for table in tables for kind in _KINDS_OF_LATE]
    lowest = [each.replace("<table>", table) for table in tables for each in _LOWEST_LATE]
    # The stretch ends where one of the tables was looked at no further.
    statement = (
        _READ.replace("<last>", "coalesce(min(last) FILTER (WHERE is_full), max(last))")
        .replace("<all late>", "UNION ALL".join(late))
        .replace("<lowest late>", ", ".join(lowest))
    )
    return _narrowed(statement, _LOOKED_AT, _AHEAD, tables, types=types, shards=shards)


@cache
def read_late(*, queue: bool, types: bool, shards: bool) -> Statement:
    """Return the statement that reads on through what was late, likewise; where that ends, it says nothing."""
    statement = _READ_LATE.replace("<last>", "min(last) FILTER (WHERE is_full)")
    return _narrowed(statement, _LOOKED_AT_BELOW, _BELOW, _tables(queue=queue), types=types, shards=shards)


def _tables(*, queue: bool) -> list[str]:
    return list(_ENTRIES) if queue else ["{outbox_events}"]


def _narrowed(
    statement: str, looked_at: str, entries: str, tables: Iterable[str], *, types: bool, shards: bool
) -> Statement:
    ours = ["source IS NOT DISTINCT FROM :source"]
    if types:
        ours.append("(event_type = ANY (:types::text[]) OR event_type LIKE ANY (:patterns::text[]))")
    if shards:
        ours.append(f"{SHARD} = ANY (:shards::int[])")
    for word, text in (
        ("<looked at>", "UNION ALL".join(looked_at.replace("<table>", table) for table in tables)),
        ("<entries>", "UNION ALL".join(_of(table, entries) for table in tables)),
        ("<ours>", " AND ".join(ours)),
        ("<size>", SIZE),
        ("<event>", EVENT),
        ("<no event>", NO_EVENT),
        ("<is dear>", _IS_DEAR),
        (
            "<waits as its aggregate>",
            _UNSETTLED.replace("<key>", "event.aggregate_type || ':' || event.aggregate_id"),
        ),
        ("<waits by itself>", _UNSETTLED.replace("<key>", "event.event_id::text")),
        ("<held>", _HELD),
        ("<revision>", _REVISION),
    ):
        statement = statement.replace(word, text)
    return Statement(statement)


def _of(table: str, branch: str) -> str:
    """Return a branch of the statement that reads one of the tables."""
    before, _, rest = branch.replace("<table>", table).partition("<entries of ")
    rows, _, after = rest.partition(">\n")
    return f"{before}{_ENTRIES[table].replace('<rows>', rows)}\n{after}"


# Look whether there is a little to read, which is all that there mostly is for who has read to the end of the log: each
# part of the whole statement costs the server a moment, and together they are most of what an event waits for. What it
# brings is narrowed by who asked. Where it brings as many as it may, or somebody is behind, the whole one is for it.
GLANCE = Statement(
    f"""
SELECT {EVENT}, NULL::bigint AS bytes, NULL::text[] AS unsettled, NULL::text AS report FROM (
  SELECT late.* FROM {_RUNNING} CROSS JOIN LATERAL (
    SELECT * FROM {{outbox_events}} WHERE {_OF_RUNNING} ORDER BY xid, position LIMIT :events_max) AS late
  UNION ALL (
    SELECT * FROM {{outbox_events}} WHERE {_OF_YOUNGER.replace(_BEGUN, _BEGUN_HERE)}
    ORDER BY xid, position LIMIT :events_max)
  UNION ALL (
    SELECT * FROM {{outbox_events}} WHERE position > :position ORDER BY position LIMIT :events_max)
) AS event
UNION ALL
SELECT {NO_EVENT}, NULL, NULL, json_build_object(
  'snapshot', pg_current_snapshot()::text,
  'held', {_HELD},
  'revision', {_REVISION},
  'behind', {_IS_DEAR} OR (
    SELECT true FROM {{outbox_deliveries}} WHERE NOT settled AND handler = ANY (:ordered::text[]) LIMIT 1)
)::text
"""  # noqa: S608 - the words are ours
)


def as_like(pattern: str) -> str:
    """Return a pattern of event types as LIKE takes it; as `fragments.like` does in SQL."""
    return pattern.replace("_", r"\_").replace("*", "%")
