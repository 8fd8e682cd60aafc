"""Reading the log on from a place, in one statement and so under one snapshot (R1, R2b)."""

from __future__ import annotations

from functools import cache

from outbox_kernel.infrastructure.outbox.sql.fragments import EVENT, NO_EVENT, NOW, SHARD, SIZE
from outbox_kernel.infrastructure.outbox.sql.named import Statement

# Read on from a place. Each kind of late entry is a branch of its own: with OR between them the planner filters the
# whole index. `position + 0` keeps it from the index of positions, most of which are below.
#
# - `stretch` is what is looked at ahead, however little of it is for whom it is read: what others are for may be
#   millions. It ends where one of the tables was looked at no further.
# - `bytes` is the sum so far: what comes after the limit is left for the next read. A payload that is stored compressed
#   counts as many times larger, as lists of rows that are all alike are: to measure it, each would have to be read.
# - `behind` tells in the usual case that nobody has anything unsettled. Where a long snapshot keeps what is settled
#   from being cleaned up, to find that out is dearer than to ask for each aggregate.
# - The last row is the read's own report.
_READ = """
WITH stretch AS MATERIALIZED (
  SELECT coalesce(min(last) FILTER (WHERE is_full), max(last)) AS last FROM (<looked at>) AS looked_at
), behind AS MATERIALIZED (
  SELECT name FROM unnest((SELECT :ordered::text[])) AS names (name)
  WHERE pg_stat_get_dead_tuples('{outbox_deliveries}'::regclass) > 5000
     OR (SELECT true FROM {outbox_deliveries} WHERE NOT settled AND handler = name LIMIT 1)
)
SELECT <event>, bytes,
       CASE WHEN EXISTS (SELECT FROM behind) THEN (
         SELECT array_agg(name) FROM behind WHERE (
           SELECT true FROM {outbox_deliveries} AS delivery
           WHERE NOT settled AND handler = name AND delivery.position <= event.position
             AND order_key IN (event_id::text, aggregate_type || ':' || aggregate_id) LIMIT 1)
       ) END AS unsettled,
       NULL::text AS report
FROM (
  <late>
  UNION ALL
  SELECT * FROM (
    SELECT *, sum(<size>) OVER (ORDER BY position ROWS UNBOUNDED PRECEDING) AS bytes
    FROM (SELECT * FROM (<ahead>) AS next ORDER BY position LIMIT :events_max) AS ahead) AS measured
  WHERE bytes - <size> < :bytes_max
) AS event
UNION ALL
SELECT <no event>, NULL, NULL, json_build_object(
  'snapshot', pg_current_snapshot()::text,
  'held', EXISTS (
    SELECT FROM {outbox_relays} WHERE id = :relay AND epoch = :epoch AND expires_at > <now>),
  'revision', (SELECT coalesce(sum(revision), 0) FROM {outbox_subscriptions}),
  'scanned', (SELECT last FROM stretch))::text
"""
_LOOKED_AT = """
SELECT max(position) AS last, count(*) = :look_max AS is_full FROM (
  SELECT position FROM <table> WHERE position > :position ORDER BY position LIMIT :look_max) AS next
"""
_AHEAD = """(
SELECT * FROM <entries of (SELECT * FROM <table> WHERE position > :position ORDER BY position LIMIT :look_max)>
WHERE <ours> AND position <= (SELECT last FROM stretch) ORDER BY position LIMIT :events_max)
"""
_LATE = """
SELECT *, NULL::bigint AS bytes FROM <entries of <table>>
WHERE <is late> AND position <= :position AND position + 0 > :floor::bigint AND <ours>
"""
_KINDS_OF_LATE = (
    "xid = ANY (ARRAY(SELECT pg_snapshot_xip(:snapshot::text::pg_snapshot)))",
    "xid >= pg_snapshot_xmax(:snapshot::text::pg_snapshot)",
)

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
    tables = list(_ENTRIES) if queue else ["{outbox_events}"]
    ours = ["source IS NOT DISTINCT FROM :source"]
    if types:
        ours.append("(event_type = ANY (:types::text[]) OR event_type LIKE ANY (:patterns::text[]))")
    if shards:
        ours.append(f"{SHARD} = ANY (:shards::int[])")
    late = [_of(table, _LATE.replace("<is late>", kind)) for table in tables for kind in _KINDS_OF_LATE]
    statement = _READ
    for word, text in (
        ("<looked at>", "UNION ALL".join(_LOOKED_AT.replace("<table>", table) for table in tables)),
        ("<late>", "UNION ALL".join(late)),
        ("<ahead>", "UNION ALL".join(_of(table, _AHEAD) for table in tables)),
        ("<ours>", " AND ".join(ours)),
        ("<size>", SIZE),
        ("<event>", EVENT),
        ("<no event>", NO_EVENT),
        ("<now>", NOW),
    ):
        statement = statement.replace(word, text)
    return Statement(statement)


def _of(table: str, branch: str) -> str:
    """Return a branch of the statement that reads one of the tables."""
    before, _, rest = branch.replace("<table>", table).partition("<entries of ")
    rows, _, after = rest.partition(">\n")
    return f"{before}{_ENTRIES[table].replace('<rows>', rows)}\n{after}"


def as_like(pattern: str) -> str:
    """Return a pattern of event types as LIKE takes it; as `fragments.like` does in SQL."""
    return pattern.replace("_", r"\_").replace("*", "%")
