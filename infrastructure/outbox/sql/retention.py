"""Retention: what is delivered goes after a while, a window at a time, so that no purge is ever long (R13).

Windows go by key and are given where to begin, so that a purge costs what it looks at and not what there is, nor what
went and is not cleaned up yet. Each statement is for one at a time (`held` is false where another is at it), comes
after `SETTINGS` in its transaction, and ends with a report: `last` is where the next window begins, `over` that
there is nothing older, `kept` the lowest that is old and stays.
"""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import (
    NOW,
    OPERATORS_TURN,
    SHARDS,
    is_due,
    is_passed,
    shard,
)
from outbox_kernel.infrastructure.outbox.sql.named import Statement

# How a window is purged: by index, since there is one right plan, whatever the server believes of a table; waiting for
# nobody who holds a row, nor for its way to the disk, since a purge that a crash of the server undoes was none; and not
# for long, whatever there is that is not cleaned up. And not while an operator has deliveries written, of what may be
# old: the statement that follows knows of all that was written before.
SETTINGS = Statement(f"""
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true), set_config('jit', 'off', true),
       set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '1s', true),
       set_config('statement_timeout', '5s', true),
       pg_try_advisory_xact_lock_shared({OPERATORS_TURN}) AS is_free
""")

# How much there is to look at.
EXTENT = Statement("""
SELECT coalesce(min(position), 1) - 1 AS after, coalesce(max(position), 0) AS last FROM {outbox_events}
""")

_PURGERS_TURN = "hashtextextended('outbox-kernel purge ' || '{outbox_events}'::regclass::oid::text, 0)"
_TURN = f"""turn AS MATERIALIZED (
  SELECT :is_free::bool
         AND pg_try_advisory_xact_lock({_PURGERS_TURN}) AS held,
         {NOW} - :days::float8 * interval '1 day' AS cutoff
)"""
_CUTOFF = "(SELECT cutoff FROM turn)"
_HELD = "(SELECT held FROM turn)"

# Purge one window of delivered events, with their deliveries and receipts. It ends at the first event that is young.
#
# - `behind` are the cursors that may not have passed all of the window: none, as a rule.
# - What is written here stays until somebody has subscribed to it: the first to do so gets all of it.
# - What a queue has brought again keeps its event until that is old, and passed, too.
# - A delivery that is not done keeps its event, a dead letter too; one that came to its end lately keeps it for as long
#   as if it were of today. What retired subscriptions have left keeps nothing.
# - A receipt that is younger than its time stays, for PURGE_RECEIPTS.
PURGE_EVENTS = Statement(
    f"""
WITH {_TURN}, seen AS MATERIALIZED (
  SELECT position, xid, event_id, event_type, source, aggregate_id, created_at < {_CUTOFF} AS is_old
  FROM {{outbox_events}}
  WHERE position > :after AND position <= :after::bigint + :span_max::bigint AND {_HELD}
  ORDER BY position LIMIT :rows_max
), young AS MATERIALIZED (
  SELECT min(position) AS position FROM seen WHERE NOT is_old
), old AS MATERIALIZED (
  SELECT * FROM seen WHERE position < (SELECT position FROM young) OR (SELECT position FROM young) IS NULL
), behind AS MATERIALIZED (
  SELECT subscription.patterns, subscription.source, subscription.retired_at, shard.number AS shard, place.position,
         place.snapshot, place.late_position, place.late_snapshot, place.floor
  FROM {{outbox_subscriptions}} AS subscription CROSS JOIN generate_series(0, {SHARDS - 1}) AS shard (number)
  LEFT JOIN {{outbox_cursor_places}} AS place
    ON place.subscription = subscription.name AND place.shard = shard.number
  WHERE subscription.retired_at IS NULL AND (
    place.position >= (SELECT max(position) FROM old)
    AND pg_snapshot_xmin(place.snapshot) > (SELECT xid FROM old ORDER BY xid DESC LIMIT 1)) IS NOT TRUE
), doomed AS MATERIALIZED (
  SELECT position FROM old AS event
  WHERE (source IS NOT NULL OR EXISTS (SELECT FROM {{outbox_subscriptions}} WHERE source IS NULL))
  AND NOT EXISTS (
    SELECT FROM behind WHERE behind.shard = {shard("event")} AND {is_due("behind", "event")}
      AND {is_passed("event", "behind")} IS NOT TRUE)
  AND NOT EXISTS (
    SELECT FROM {{outbox_deliveries}} AS delivery
    WHERE delivery.event_id = event.event_id
      AND (delivery.status NOT IN ('done', 'skipped') OR delivery.updated_at >= {_CUTOFF})
      AND (delivery.status = 'leased' OR NOT EXISTS (
        SELECT FROM {{outbox_subscriptions}} AS subscription
        WHERE subscription.name = delivery.handler AND subscription.retired_at IS NOT NULL)))
  AND NOT EXISTS (
    SELECT FROM {{outbox_arrivals}} AS arrival
    WHERE arrival.event_id = event.event_id AND (arrival.created_at >= {_CUTOFF} OR EXISTS (
      SELECT FROM {{outbox_subscriptions}} AS subscription
      WHERE {is_due("subscription", "arrival")} AND (
        SELECT {is_passed("arrival", "cursor")} FROM {{outbox_cursor_places}} AS cursor
        WHERE cursor.subscription = subscription.name AND cursor.shard = {shard("arrival")}) IS NOT TRUE)))
), purged AS (
  DELETE FROM {{outbox_events}} WHERE position = ANY (ARRAY(SELECT position FROM doomed)) RETURNING event_id
), deliveries AS (
  DELETE FROM {{outbox_deliveries}} WHERE event_id = ANY (ARRAY(SELECT event_id FROM purged)) RETURNING 1
), arrivals AS (
  DELETE FROM {{outbox_arrivals}} WHERE event_id = ANY (ARRAY(SELECT event_id FROM purged))
), receipts AS (
  DELETE FROM {{outbox_receipts}}
  WHERE event_id = ANY (ARRAY(SELECT event_id FROM purged))
    AND created_at < {NOW} - :receipt_days::float8 * interval '1 day' RETURNING 1
), edge AS (
  SELECT CASE WHEN (SELECT position FROM young) IS NOT NULL THEN (SELECT max(position) FROM old)
              WHEN (SELECT count(*) FROM seen) = :rows_max THEN (SELECT max(position) FROM seen)
              ELSE least(:after::bigint + :span_max::bigint, (SELECT max(position) FROM {{outbox_events}})) END AS last
)
SELECT {_HELD} AS held,
       (SELECT count(*) FROM purged) AS events,
       (SELECT count(*) FROM deliveries) AS deliveries,
       (SELECT count(*) FROM receipts) AS receipts,
       greatest(:after::bigint, last) AS last,
       (SELECT min(position) FROM old WHERE position NOT IN (SELECT position FROM doomed)) AS kept,
       (SELECT position FROM young) IS NOT NULL OR (
         (SELECT count(*) FROM seen) < :rows_max
         AND coalesce(last >= (SELECT max(position) FROM {{outbox_events}}), true)) AS over
FROM edge
"""  # noqa: S608 - the fragments are ours
)

# Purge one window of receipts whose event went before their own time was over. Event ids rise with time, and so
# their key does.
PURGE_RECEIPTS = Statement(
    f"""
WITH {_TURN}, edge AS MATERIALIZED (
  SELECT event_id FROM {{outbox_receipts}}
  WHERE event_id > :after AND {_HELD} ORDER BY event_id, handler OFFSET :rows_max::bigint - 1 LIMIT 1
), seen AS MATERIALIZED (
  SELECT event_id, handler, created_at < {_CUTOFF} AS is_old FROM {{outbox_receipts}}
  WHERE event_id > :after AND {_HELD}
    AND event_id <= coalesce((SELECT event_id FROM edge), 'ffffffff-ffff-ffff-ffff-ffffffffffff')
), doomed AS MATERIALIZED (
  SELECT event_id, handler FROM seen AS receipt
  WHERE is_old AND NOT EXISTS (SELECT FROM {{outbox_events}} AS event WHERE event.event_id = receipt.event_id)
), purged AS (
  DELETE FROM {{outbox_receipts}} AS receipt USING doomed
  WHERE receipt.event_id = doomed.event_id AND receipt.handler = doomed.handler RETURNING 1
)
SELECT {_HELD} AS held,
       (SELECT count(*) FROM purged) AS receipts,
       coalesce((SELECT event_id FROM seen ORDER BY event_id DESC LIMIT 1), :after) AS last,
       (SELECT event_id FROM seen WHERE (event_id, handler) NOT IN (SELECT * FROM doomed) ORDER BY event_id LIMIT 1)
         AS kept,
       (SELECT event_id FROM edge) IS NULL OR NOT EXISTS (SELECT FROM seen WHERE is_old) AS over
"""  # noqa: S608 - the fragments are ours
)

# Thin the progress of readers that cursors go with now, a window of each: what is old dates no event that is young. The
# newest that is old stays, since by it the next one is known to be what passed an event first; and so does what
# cursors began or ended with. Each reader is looked at from a number on, or from its beginning.
PURGE_PROGRESS = Statement(
    f"""
WITH {_TURN}, begin AS MATERIALIZED (
  SELECT named.reader, coalesce(given.number, -1) AS number
  FROM (SELECT DISTINCT reader FROM {{outbox_cursors}}) AS named
  LEFT JOIN unnest(:readers::uuid[], :after::bigint[]) AS given (reader, number) ON given.reader = named.reader
), seen AS MATERIALIZED (
  SELECT begin.reader, step.number FROM begin CROSS JOIN LATERAL (
    SELECT number, recorded_at FROM {{outbox_progress}} AS progress
    WHERE progress.reader = begin.reader AND progress.number > begin.number AND {_HELD}
    ORDER BY number LIMIT :rows_max) AS step
  WHERE step.recorded_at < {_CUTOFF}
), newest AS MATERIALIZED (
  SELECT reader, max(number) AS number, count(*) AS seen FROM seen GROUP BY reader
), anchor AS MATERIALIZED (
  SELECT reader, first_number AS number FROM {{outbox_cursors}}
  UNION SELECT reader, first_number FROM {{outbox_cursors_past}} WHERE reader = ANY (ARRAY(SELECT reader FROM newest))
  UNION SELECT reader, last_number FROM {{outbox_cursors_past}} WHERE reader = ANY (ARRAY(SELECT reader FROM newest))
), doomed AS MATERIALIZED (
  SELECT seen.reader, seen.number FROM seen JOIN newest ON newest.reader = seen.reader
  WHERE seen.number < newest.number AND (seen.reader, seen.number) NOT IN (SELECT reader, number FROM anchor)
), purged AS (
  DELETE FROM {{outbox_progress}} AS progress USING doomed
  WHERE progress.reader = doomed.reader AND progress.number = doomed.number RETURNING 1
)
SELECT {_HELD} AS held, (SELECT count(*) FROM purged) AS places,
       coalesce((SELECT array_agg(reader ORDER BY reader) FROM newest), ARRAY[]::uuid[]) AS readers,
       -- From the one that stays on, which so is there to be compared with the next.
       coalesce((SELECT array_agg(number - 1 ORDER BY reader) FROM newest), ARRAY[]::bigint[]) AS last,
       NOT EXISTS (SELECT FROM newest WHERE newest.seen = :rows_max) AS over
"""  # noqa: S608 - the fragments are ours
)

# Forget with which readers cursors went: what they passed then is old.
PURGE_PAST = Statement(
    f"""
WITH {_TURN}, purged AS (
  DELETE FROM {{outbox_cursors_past}} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {{outbox_cursors_past}} WHERE until < {_CUTOFF} AND {_HELD} LIMIT :rows_max))
  RETURNING 1
)
SELECT {_HELD} AS held, (SELECT count(*) FROM purged) AS places, (SELECT count(*) FROM purged) < :rows_max AS over
"""  # noqa: S608 - the fragments are ours
)

# Forget the progress of readers that no cursor goes with, or went with. It hops from reader to reader.
PURGE_READERS = Statement(
    f"""
WITH RECURSIVE {_TURN}, hop (reader) AS (
  (SELECT reader FROM {{outbox_progress}} WHERE {_HELD} ORDER BY reader LIMIT 1)
  UNION ALL
  SELECT (SELECT progress.reader FROM {{outbox_progress}} AS progress
          WHERE progress.reader > hop.reader ORDER BY progress.reader LIMIT 1)
  FROM hop WHERE hop.reader IS NOT NULL
), doomed AS MATERIALIZED (
  SELECT step.reader, step.number FROM hop CROSS JOIN LATERAL (
    SELECT reader, number FROM {{outbox_progress}} AS progress
    WHERE progress.reader = hop.reader ORDER BY number LIMIT :rows_max) AS step
  WHERE (SELECT true FROM {{outbox_cursors}} WHERE reader = hop.reader LIMIT 1) IS NULL
    AND (SELECT true FROM {{outbox_cursors_past}} WHERE reader = hop.reader LIMIT 1) IS NULL
  LIMIT :rows_max
), purged AS (
  DELETE FROM {{outbox_progress}} AS progress USING doomed
  WHERE progress.reader = doomed.reader AND progress.number = doomed.number RETURNING 1
)
SELECT {_HELD} AS held, (SELECT count(*) FROM purged) AS places, (SELECT count(*) FROM purged) < :rows_max AS over
"""  # noqa: S608 - the fragments are ours
)
