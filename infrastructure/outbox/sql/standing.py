"""How far subscriptions are: what stands behind their cursors, and what of it is counted (O1, R2)."""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import NOW, UNFINISHED, is_due, is_passed, shard
from outbox_kernel.infrastructure.outbox.sql.named import Statement

# Look for what subscriptions have yet to pass, each from its own lowest place on. Of each kind nobody looks at more
# than :look_max events for one of them, so that it costs the same with ten million behind it. What was late is looked
# for as it is read (`reading` says why). Places stand in arrays by shard, which no planner can join in another way.
_STANDS = """
subscription AS MATERIALIZED (
  SELECT name, patterns, source, retired_at, min(place.position) AS position, min(place.floor) AS floor,
         min(pg_snapshot_xmax(place.snapshot)) AS xmax,
         array_agg(place.position ORDER BY shard) AS positions, array_agg(place.floor ORDER BY shard) AS floors,
         array_agg(place.snapshot ORDER BY shard) AS snapshots,
         array_agg(place.late_position ORDER BY shard) AS late_positions,
         array_agg(place.late_snapshot ORDER BY shard) AS late_snapshots
  FROM {outbox_subscriptions} JOIN {outbox_cursor_places} AS place ON place.subscription = name
  WHERE retired_at IS NULL AND (:name::text IS NULL OR name = :name) GROUP BY name
)"""
_BELOW = "position <= subscription.position AND position > subscription.floor ORDER BY xid, position LIMIT :look_max"
_SEEN = f"""{_STANDS}, seen AS MATERIALIZED (
  SELECT name, event.position, event.event_id, event.created_at, event.found,
         {is_due("subscription", "event")} AS is_due, {is_passed("event", "place")} AS is_passed
  FROM subscription
  CROSS JOIN LATERAL (
    (SELECT *, 'ahead' AS found FROM {{outbox_log}} AS ahead
     WHERE ahead.position > subscription.position ORDER BY position LIMIT :look_max)
    UNION ALL
    SELECT late.*, 'late' FROM (
      SELECT DISTINCT pg_snapshot_xip(snapshot) AS running FROM unnest(snapshots) AS snapshot) AS before
    CROSS JOIN LATERAL (
      SELECT * FROM {{outbox_log}} WHERE xid >= running AND xid <= running AND {_BELOW}) AS late
    WHERE running < xmax
    UNION ALL
    (SELECT *, 'younger' FROM {{outbox_log}} WHERE xid >= xmax AND {_BELOW})
  ) AS event
  CROSS JOIN LATERAL (
    SELECT positions[number] AS position, floors[number] AS floor, snapshots[number] AS snapshot,
           late_positions[number] AS late_position, late_snapshots[number] AS late_snapshot
    FROM (VALUES (1 + {shard("event")})) AS place (number)) AS place
)
"""  # noqa: S608 - the rules are ours
_ENDED = " OR ".join(
    f"count(*) FILTER (WHERE found = '{found}') >= :look_max" for found in ("ahead", "late", "younger")
)

# Of each subscription how many events stand behind it, or how many at least; the last row is of all together, with the
# events whose deliveries are open or dead.
LAG = Statement(f"""
WITH {_SEEN}, undelivered AS (
  SELECT bool_or(is_pending) AS is_pending, bool_or(is_open) AS is_open FROM (
    SELECT event_id, true AS is_pending, false AS is_open FROM seen WHERE is_due AND NOT is_passed
    UNION ALL
    SELECT event_id, false, status <> 'dead' FROM {{outbox_deliveries}}
    WHERE {UNFINISHED}
      AND handler <> ALL (ARRAY(SELECT name FROM {{outbox_subscriptions}} WHERE retired_at IS NOT NULL))
  ) AS event GROUP BY event_id
)
SELECT name, count(*) FILTER (WHERE is_due AND NOT is_passed) AS events,
       {_ENDED} AS is_at_least,
       min(position) FILTER (WHERE is_due AND NOT is_passed) AS position,
       extract(epoch FROM {NOW} - min(created_at) FILTER (WHERE is_due AND NOT is_passed))::float8 AS seconds,
       NULL::bigint AS open, NULL::bigint AS dead
FROM seen GROUP BY name
UNION ALL
SELECT NULL, count(*) FILTER (WHERE is_pending), NULL, NULL, NULL,
       count(*) FILTER (WHERE is_open AND NOT is_pending), count(*) FILTER (WHERE NOT (is_open OR is_pending))
FROM undelivered
""")  # noqa: S608 - the rules are ours

# How many events there are: counted while they are few, and estimated from the server's statistics where that would
# read for long.
EVENTS_THERE_ARE = Statement("""
SELECT CASE WHEN pg_relation_size('{outbox_events}') < :count_bytes_max THEN (SELECT count(*) FROM {outbox_events})
            ELSE pg_stat_get_live_tuples('{outbox_events}'::regclass) END AS events,
       pg_relation_size('{outbox_events}') >= :count_bytes_max AS is_estimated
""")

# Where the log begins.
FIRST = Statement("SELECT min(position) AS position FROM {outbox_log}")

# The oldest event that somebody has yet to handle: the lowest behind a cursor, or the one of a delivery. Dead ones are
# left out, and those whose moment is yet to come.
OLDEST = Statement(f"""
SELECT event.position, event.event_id, event_type, event.created_at,
       (SELECT status FROM {{outbox_status}} AS became WHERE became.event_id = event.event_id LIMIT 1) AS status,
       extract(epoch FROM {NOW} - greatest(event.created_at, not_before))::float8 AS age_seconds
FROM unnest(ARRAY[
  (SELECT event_id FROM {{outbox_log}} WHERE position = :position::bigint),
  (SELECT event_id FROM {{outbox_deliveries}}
   WHERE status IN ('waiting', 'leased') AND (attempts > 0 OR available_at <= {NOW}) ORDER BY position LIMIT 1)
]) AS oldest (event_id)
CROSS JOIN LATERAL (SELECT * FROM {{outbox_events}} AS event WHERE event.event_id = oldest.event_id LIMIT 1) AS event
ORDER BY event.position LIMIT 1
""")  # noqa: S608 - the rules are ours

# Subscriptions with their deliveries; deliveries of a name that never subscribed show as well.
SUBSCRIPTIONS_AND_DELIVERIES = Statement(f"""
SELECT name, kind, patterns, source, ordered, since, paused_at, retired_at,
       coalesce(waiting, 0) AS waiting, coalesce(leased, 0) AS leased, coalesce(dead, 0) AS dead
FROM {{outbox_subscriptions}} AS subscription FULL JOIN (
  SELECT handler AS name, count(*) FILTER (WHERE status = 'waiting') AS waiting,
         count(*) FILTER (WHERE status = 'leased') AS leased, count(*) FILTER (WHERE status = 'dead') AS dead
  FROM {{outbox_deliveries}} WHERE {UNFINISHED} GROUP BY handler
) AS delivery USING (name)
ORDER BY name
""")  # noqa: S608 - the rule is ours
