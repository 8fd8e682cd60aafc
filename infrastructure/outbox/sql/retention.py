"""Retention: what is delivered goes after a while, a window at a time, so that no purge is ever long (R13).

Windows go by position and are given where to begin, so that a purge costs what it looks at and not what there
is. Both statements are for one at a time (`held` is false where another is at it), and end with a report:
`last` is where the next window begins, `over` that there is nothing older, `kept` the lowest position that
stays, below which the next purge need not look.
"""

from __future__ import annotations

RECEIPT_DAYS_MIN = 7
"""A receipt outlives even an event that is purged sooner: a relay that was stopped must still find it."""

_TURN = "pg_try_advisory_xact_lock(hashtextextended('outbox-kernel purge {outbox_events}', 0))"

# Purge one window of delivered events, with their deliveries and receipts; none of which a delivery is left to be
# handled, whatever the event itself says.
# 1 after position, 2 events to look at, 3 days they are kept, 4 days receipts are kept at least, 5 now.
PURGE_EVENTS = f"""
WITH turn AS MATERIALIZED (
  SELECT {_TURN} AS held, coalesce($5::timestamptz, clock_timestamp()) AS now
), seen AS MATERIALIZED (
  SELECT position, status, created_at, processed_at FROM {{outbox_events}}
  WHERE position > $1 AND (SELECT held FROM turn) ORDER BY position LIMIT $2
), doomed AS MATERIALIZED (
  SELECT position FROM {{outbox_events}} AS event
  WHERE status = 'delivered' AND NOT EXISTS (
    SELECT FROM {{outbox_deliveries}} AS delivery
    WHERE delivery.event_id = event.event_id AND delivery.status NOT IN ('done', 'skipped'))
  AND position = ANY (ARRAY(
    SELECT position FROM seen
    WHERE status = 'delivered' AND processed_at < (SELECT now FROM turn) - $3::float8 * interval '1 day'))
  FOR UPDATE SKIP LOCKED
), purged AS (
  DELETE FROM {{outbox_events}} WHERE position = ANY (ARRAY(SELECT position FROM doomed)) RETURNING event_id
), deliveries AS (
  DELETE FROM {{outbox_deliveries}} WHERE event_id = ANY (ARRAY(SELECT event_id FROM purged)) RETURNING 1
), receipts AS (
  DELETE FROM {{outbox_receipts}}
  WHERE event_id = ANY (ARRAY(SELECT event_id FROM purged))
    AND created_at < (SELECT now FROM turn) - $4::float8 * interval '1 day' RETURNING 1
)
SELECT (SELECT held FROM turn) AS held,
       (SELECT count(*) FROM purged) AS events,
       (SELECT count(*) FROM deliveries) AS deliveries,
       (SELECT count(*) FROM receipts) AS receipts,
       (SELECT max(position) FROM seen) AS last,
       (SELECT min(position) FROM seen WHERE position NOT IN (SELECT position FROM doomed)) AS kept,
       coalesce((SELECT min(created_at) FROM seen) >= (SELECT now FROM turn) - $3::float8 * interval '1 day', true)
         AS over
"""  # noqa: S608 - the turn is ours

# Purge one window of receipts whose event went before their own time was over. Event ids rise with time, and so
# their key does. 1 after event id, 2 receipts to look at, 3 days they are kept, 4 now.
PURGE_RECEIPTS = f"""
WITH turn AS MATERIALIZED (
  SELECT {_TURN} AS held, coalesce($4::timestamptz, clock_timestamp()) AS now
), edge AS MATERIALIZED (
  SELECT event_id FROM {{outbox_receipts}}
  WHERE event_id > $1 AND (SELECT held FROM turn) ORDER BY event_id, handler OFFSET $2 - 1 LIMIT 1
), seen AS MATERIALIZED (
  SELECT event_id, handler, created_at FROM {{outbox_receipts}}
  WHERE event_id > $1 AND (SELECT held FROM turn) AND event_id <= coalesce(
    (SELECT event_id FROM edge), 'ffffffff-ffff-ffff-ffff-ffffffffffff')
), purged AS (
  DELETE FROM {{outbox_receipts}} AS receipt USING seen
  WHERE receipt.event_id = seen.event_id AND receipt.handler = seen.handler
    AND receipt.created_at < (SELECT now FROM turn) - $3::float8 * interval '1 day'
    AND NOT EXISTS (SELECT FROM {{outbox_events}} AS event WHERE event.event_id = receipt.event_id)
  RETURNING 1
)
SELECT (SELECT held FROM turn) AS held,
       (SELECT count(*) FROM purged) AS receipts,
       (SELECT event_id FROM seen ORDER BY event_id DESC LIMIT 1) AS last,
       coalesce((SELECT min(created_at) FROM seen) >= (SELECT now FROM turn) - $3::float8 * interval '1 day', true)
         AS over
"""  # noqa: S608 - the turn is ours
