"""The outbox at a glance: how far each subscription is and what it has left, each looked at as far as is shown (O3).

Of whoever is a million events behind it is enough to know that it is many. So nothing here costs more where there
is more of it, and each answer says whether there may be more.
"""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import HIGHEST, NOW, is_due, shard
from outbox_kernel.infrastructure.outbox.sql.named import Statement

# Each subscription with its place: so many of the events ahead of it are looked at. What is late is left out, since
# each read of a relay finds it.
SUBSCRIPTIONS = Statement(f"""
WITH place AS MATERIALIZED (
  SELECT subscription AS name, min(position) AS position, array_agg(position ORDER BY shard) AS positions
  FROM {{outbox_cursor_places}} GROUP BY subscription
)
SELECT name, kind, patterns, source, ordered, since, paused_at, retired_at, place.position,
       coalesce(ahead.events, 0) AS lag_events, coalesce(ahead.looked_at >= :look_max, false) AS lag_is_at_least,
       extract(epoch FROM {NOW} - ahead.oldest)::float8 AS lag_seconds,
       greatest(0, {HIGHEST} - place.position) AS lag_positions
FROM {{outbox_subscriptions}} AS subscription LEFT JOIN place USING (name)
LEFT JOIN LATERAL (
  SELECT count(*) AS looked_at, count(*) FILTER (WHERE is_left) AS events,
         min(created_at) FILTER (WHERE is_left) AS oldest
  FROM (
    SELECT created_at,
           {is_due("subscription", "event")} AND event.position > place.positions[1 + {shard("event")}] AS is_left
    FROM (SELECT * FROM {{outbox_log}} AS log WHERE log.position > place.position
          ORDER BY log.position LIMIT :look_max) AS event) AS seen) AS ahead ON retired_at IS NULL
WHERE :name::text IS NULL OR name = :name
ORDER BY name
""")  # noqa: S608 - the rules are ours

# Who has something unsettled, hopping from one to the next; the deliveries of names that never subscribed show, too.
_UNSETTLED = """
named AS (
  (SELECT handler FROM {outbox_deliveries} WHERE NOT settled AND (:name::text IS NULL OR handler = :name)
   ORDER BY handler LIMIT 1)
  UNION ALL
  SELECT (SELECT delivery.handler FROM {outbox_deliveries} AS delivery
          WHERE NOT settled AND delivery.handler > named.handler AND :name::text IS NULL
          ORDER BY delivery.handler LIMIT 1)
  FROM named WHERE named.handler IS NOT NULL
), seen AS (
  SELECT delivery.* FROM named CROSS JOIN LATERAL (
    SELECT event_id, handler, status, attempts, position, available_at, created_at FROM {outbox_deliveries}
    WHERE NOT settled AND handler = named.handler LIMIT :look_max) AS delivery
)
"""

# What is to be run, of each handler so many deliveries looked at. The oldest is the one whose time has come first.
DELIVERIES = Statement(f"""
WITH RECURSIVE {_UNSETTLED}
SELECT handler AS name, count(*) FILTER (WHERE status = 'waiting') AS waiting,
       count(*) FILTER (WHERE status = 'waiting' AND attempts > 0) AS retrying,
       count(*) FILTER (WHERE status = 'leased') AS leased,
       count(*) >= :look_max AS is_at_least,
       extract(epoch FROM {NOW} - min(created_at) FILTER (
         WHERE status <> 'dead' AND (attempts > 0 OR available_at <= {NOW})))::float8 AS oldest_seconds
FROM seen GROUP BY handler ORDER BY handler
""")  # noqa: S608 - the rules are ours

# What waits, by what a relay needs to know to run it; of each handler so many deliveries looked at.
KINDS = Statement(f"""
WITH RECURSIVE {_UNSETTLED}
SELECT seen.handler, event.event_type, event.event_version, count(*) AS deliveries,
       min(event.position) AS position, min(seen.created_at) AS since
FROM seen CROSS JOIN LATERAL (
  SELECT event_type, event_version, position FROM {{outbox_events}} AS event
  WHERE event.event_id = seen.event_id LIMIT 1) AS event
WHERE seen.status = 'waiting' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
""")  # noqa: S608 - ours

# How many events a subscription is due for from a position on, of so many that are looked at.
DUE_FROM = Statement(f"""
SELECT count(*) FILTER (WHERE is_due) AS events, count(*) >= :look_max AS is_at_least, min(created_at) AS since
FROM (
  SELECT created_at, {is_due("subscription", "event")} AS is_due
  FROM {{outbox_subscriptions}} AS subscription CROSS JOIN (
    SELECT * FROM {{outbox_log}} AS log WHERE log.position >= :position ORDER BY log.position LIMIT :look_max) AS event
  WHERE subscription.name = :name) AS seen
""")  # noqa: S608 - the rules are ours

# What changes whenever something has happened, at the price of a few rows.
PULSE = Statement(f"""
SELECT {HIGHEST} AS position,
       (SELECT sum(place.position)::text || max(place.recorded_at) FROM {{outbox_cursor_places}} AS place) AS places,
       (SELECT sum(revision) FROM {{outbox_subscriptions}}) AS revision,
       (SELECT count(*) || coalesce(sum(hashtext(relay.pauses::text)), 0)::text FROM {{outbox_relays}} AS relay
        WHERE expires_at > {NOW}) AS relays,
       pg_stat_get_tuples_inserted('{{outbox_deliveries}}'::regclass)
         + pg_stat_get_tuples_updated('{{outbox_deliveries}}'::regclass)
         + pg_stat_get_tuples_deleted('{{outbox_deliveries}}'::regclass) AS deliveries
""")  # noqa: S608 - the rules are ours

# A handler's deliveries that are to be run, of so many looked at: those first that have failed.
OPEN_OF = Statement("""
SELECT seen.position, seen.event_id, seen.status, seen.attempts, seen.available_at, seen.updated_at, seen.error_message,
       event.event_type, event.aggregate_type, event.aggregate_id, event.aggregate_key,
       earlier.event_id AS behind_event, earlier.status AS behind_status
FROM (
  SELECT * FROM (
    SELECT * FROM {outbox_deliveries} WHERE NOT settled AND handler = :name LIMIT :look_max) AS looked_at
  WHERE status <> 'dead' ORDER BY attempts = 0, position LIMIT :deliveries_max) AS seen
CROSS JOIN LATERAL (
  SELECT * FROM {outbox_events} AS event WHERE event.event_id = seen.event_id LIMIT 1) AS event
LEFT JOIN LATERAL (
  SELECT event_id, status FROM {outbox_deliveries} AS earlier
  WHERE NOT settled AND earlier.order_key = seen.order_key AND handler = :name AND earlier.position < seen.position
  ORDER BY earlier.position LIMIT 1) AS earlier ON seen.status = 'waiting'
ORDER BY seen.attempts = 0, seen.position
""")
