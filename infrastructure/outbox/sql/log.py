"""Reading the log from a place on, and writing the place down (R1, R2b)."""

from __future__ import annotations

from functools import cache

from outbox_kernel.infrastructure.outbox.sql.fragments import EVENT, LEASE, NO_EVENT, NOW, SHARD, SIZE
from outbox_kernel.infrastructure.outbox.sql.named import Statement

# Read on from a place, under one snapshot. Each kind of late event is a branch of its own: with OR between them the
# planner filters the whole index. `position + 0` keeps it from the index of positions, most of which are below.
#
# - `bytes` is the sum so far: what comes after the limit is left for the next read.
# - `behind` tells in the usual case that nobody has anything unsettled. Where a long snapshot keeps what is settled
#   from being cleaned up, to find that out is dearer than to ask for each aggregate.
# - The last row is the read's own report.
_READ = """
WITH behind AS MATERIALIZED (
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
  SELECT *, NULL::bigint AS bytes FROM {outbox_events}
  WHERE xid = ANY (ARRAY(SELECT pg_snapshot_xip(:snapshot::text::pg_snapshot)))
    AND position <= :position AND position + 0 > :floor::bigint AND <ours>
  UNION ALL
  SELECT *, NULL FROM {outbox_events}
  WHERE xid >= pg_snapshot_xmax(:snapshot::text::pg_snapshot)
    AND position <= :position AND position + 0 > :floor::bigint AND <ours>
  UNION ALL
  SELECT * FROM (
    SELECT *, sum(<size>) OVER (ORDER BY position ROWS UNBOUNDED PRECEDING) AS bytes FROM <ahead>) AS measured
  WHERE bytes - <size> < :bytes_max
) AS event
UNION ALL
SELECT <no event>, NULL, NULL, json_build_object(
  'snapshot', pg_current_snapshot()::text,
  'held', EXISTS (
    SELECT FROM {outbox_relays} WHERE id = :relay AND epoch = :epoch AND expires_at > <now>),
  'revision', (SELECT coalesce(sum(revision), 0) FROM {outbox_subscriptions}),
  'scanned', <scanned>)::text
"""
_LOOKED_AT = "FROM {outbox_events} WHERE position > :position ORDER BY position LIMIT :look_max) AS looked"
# Of a stretch, however little of it is ours: what other queues have brought may be millions.
_AHEAD = f"(SELECT * FROM (SELECT * {_LOOKED_AT} WHERE <ours> ORDER BY position LIMIT :events_max) AS ahead"  # noqa: S608 - ours
_SCANNED = f"(SELECT max(position) FROM (SELECT position {_LOOKED_AT})"  # noqa: S608 - ours


@cache
def read(*, types: bool, shards: bool) -> Statement:
    """Return the statement that reads on, narrowed down to a source, and to event types or shards or neither."""
    ours = ["source IS NOT DISTINCT FROM :source"]
    if types:
        ours.append("(event_type = ANY (:types::text[]) OR event_type LIKE ANY (:patterns::text[]))")
    if shards:
        ours.append(f"{SHARD} = ANY (:shards::int[])")
    statement = _READ.replace("<ahead>", _AHEAD)
    for word, text in (
        ("<scanned>", _SCANNED),
        ("<ours>", " AND ".join(ours)),
        ("<size>", SIZE),
        ("<event>", EVENT),
        ("<no event>", NO_EVENT),
        ("<now>", NOW),
    ):
        statement = statement.replace(word, text)
    return Statement(statement)


_MOVE = """
INSERT INTO {outbox_progress} (reader, number, position, server, snapshot, events, recorded_at)
SELECT reader, number, position, server, snapshot::pg_snapshot, events, <now>
FROM unnest(:readers::uuid[], :numbers::bigint[], :positions::bigint[], :servers::int[], :snapshots::text[],
            :events::int[]) AS moved (reader, number, position, server, snapshot, events)
WHERE EXISTS (SELECT FROM lease)
""".replace("<now>", NOW)

# Write down where readers stand. It returns nothing where the lease does not hold.
MOVE = Statement(f"WITH {LEASE} {_MOVE} RETURNING true AS held")

# The same, with the deliveries of those who did not succeed with an event that is passed now. A row that is there
# already is settled, and the event was gone back to; or it is not, and keeps what it has.
LEAVE_AND_MOVE = Statement(
    f"""
WITH {LEASE}, outcome AS MATERIALIZED (
  SELECT * FROM unnest(
    :event_ids::uuid[], :places::bigint[], :handlers::text[], :order_keys::text[], :states::text[], :attempts::int[],
    :takeovers::int[], :on_dead::text[], :delays::float8[], :not_before::timestamptz[], :errors::text[]
  ) AS outcome (event_id, position, handler, order_key, status, attempts, takeovers, on_dead, delay_seconds, not_before,
                error_message)
  WHERE EXISTS (SELECT FROM lease)
), written AS (
  INSERT INTO {{outbox_deliveries}} AS present (
    event_id, position, handler, order_key, status, attempts, takeovers, on_dead, available_at, lease_relay,
    lease_epoch, error_message)
  SELECT event_id, position, handler, order_key, status, attempts, takeovers, on_dead,
         greatest(not_before, {NOW} + delay_seconds * interval '1 second'),
         CASE WHEN status = 'leased' THEN :relay::uuid END, CASE WHEN status = 'leased' THEN :epoch::bigint END,
         error_message
  FROM outcome
  ON CONFLICT (event_id, handler) DO UPDATE
  SET status = excluded.status, attempts = excluded.attempts, takeovers = excluded.takeovers, alone = false,
      on_dead = excluded.on_dead, available_at = excluded.available_at, updated_at = {NOW},
      lease_relay = excluded.lease_relay, lease_epoch = excluded.lease_epoch, error_message = excluded.error_message
  WHERE present.settled
), passed_over AS (
  INSERT INTO {{outbox_receipts}} (event_id, handler, outcome)
  SELECT event_id, handler, 'skipped' FROM outcome WHERE status = 'dead' AND on_dead = 'continue'
  ON CONFLICT DO NOTHING
)
, moved AS ({_MOVE})
SELECT true AS held FROM lease
"""  # noqa: S608 - the fragments are ours
)


def as_like(pattern: str) -> str:
    """Return a pattern of event types as LIKE takes it; as `fragments.like` does in SQL."""
    return pattern.replace("_", r"\_").replace("*", "%")
