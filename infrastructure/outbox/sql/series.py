"""How things went over the past days, as the progress of readers tells: throughput, lag, latency (O3).

A reader's progress is a running total with a moment, so that what was passed between two moments is a difference of two
rows, each found by index: an hour costs what a week does.
"""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import is_due
from outbox_kernel.infrastructure.outbox.sql.limits import STRETCHES_MAX
from outbox_kernel.infrastructure.outbox.sql.named import Statement
from outbox_kernel.infrastructure.outbox.sql.passing import PASS

# Per subscription and moment, how many events its readers had passed by then, and how old the first was that it had
# not. Of a reader that no cursor of it goes with any more the total stays, and its place is nobody's.
SERIES = Statement(f"""
WITH stretch AS MATERIALIZED (
  SELECT subscription, reader, max(until) AS until FROM (
    SELECT subscription, reader, 'infinity'::timestamptz AS until FROM {{outbox_cursors}}
    WHERE :name::text IS NULL OR subscription = :name
    UNION ALL
    SELECT cursor.subscription, past.reader, past.until
    FROM {{outbox_cursors}} AS cursor CROSS JOIN LATERAL (
      SELECT reader, until FROM {{outbox_cursors_past}} AS past
      WHERE past.subscription = cursor.subscription AND past.shard = cursor.shard
        AND past.until >= (SELECT min(at) FROM unnest(:moments::timestamptz[]) AS at)
      ORDER BY past.until DESC LIMIT {STRETCHES_MAX}) AS past
    WHERE :name::text IS NULL OR cursor.subscription = :name
  ) AS gone_with GROUP BY subscription, reader
), stood AS MATERIALIZED (
  SELECT stretch.subscription, moment.number, moment.at, sum(step.events)::bigint AS passed,
         min(step.position) FILTER (WHERE stretch.until > moment.at) AS position
  FROM unnest(:moments::timestamptz[]) WITH ORDINALITY AS moment (at, number)
  CROSS JOIN stretch
  LEFT JOIN LATERAL (
    SELECT events, position FROM {{outbox_progress}} AS progress
    WHERE progress.reader = stretch.reader AND progress.recorded_at <= moment.at
    ORDER BY progress.recorded_at DESC LIMIT 1) AS step ON true
  GROUP BY stretch.subscription, moment.number, moment.at
)
SELECT subscription AS name, at, passed,
       CASE WHEN position IS NOT NULL THEN greatest(0, coalesce(extract(epoch FROM at - (
         SELECT created_at FROM {{outbox_log}} AS next WHERE next.position > stood.position
         ORDER BY next.position LIMIT 1)), 0))::float8 END AS lag_seconds
FROM stood ORDER BY name, number
""")  # noqa: S608 - ours

# How long it took from the commit until it was passed, of the newest events behind each subscription that it was due
# for.
LATENCIES = Statement(f"""
WITH place AS MATERIALIZED (
  SELECT subscription AS name, min(position) AS position FROM {{outbox_cursor_places}} GROUP BY subscription
)
SELECT name, count(*) AS events,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS p50_seconds,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds) AS p95_seconds
FROM (
  SELECT name, greatest(0, extract(epoch FROM pass.recorded_at - event.created_at))::float8 AS seconds
  FROM {{outbox_subscriptions}} AS subscription JOIN place USING (name)
  CROSS JOIN LATERAL (
    SELECT * FROM (
      SELECT * FROM {{outbox_events}} AS log WHERE log.position <= place.position
      ORDER BY log.position DESC LIMIT :look_max) AS event
    WHERE {is_due("subscription", "event")} ORDER BY event.position DESC LIMIT :events_max) AS event
  CROSS JOIN LATERAL ({PASS}) AS pass
  WHERE (:name::text IS NULL OR name = :name) AND pass.recorded_at IS NOT NULL AND NOT pass.at_its_beginning
) AS passed GROUP BY name ORDER BY name
""")  # noqa: S608 - the rules are ours
