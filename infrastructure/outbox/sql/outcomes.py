"""Outcomes: what a run came to, written only by the relay that holds the lease (R2, R6, R7)."""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import LEASE, NOW
from outbox_kernel.infrastructure.outbox.sql.named import Statement

# Close events that all who were due have handled at once; none of them if the row of one says that it has deliveries
# of others, by which its status goes. 1 relay, 2 epoch, 3 positions, 4 now.
MARK_DELIVERED = """
UPDATE {outbox_events}
SET status = 'delivered', processed_at = coalesce($4::timestamptz, clock_timestamp()),
    updated_at = coalesce($4::timestamptz, clock_timestamp()),
    lease_relay = NULL, lease_epoch = NULL, error_message = NULL
WHERE position = ANY ($3) AND status = 'leased' AND lease_relay = $1 AND lease_epoch = $2
  AND processed_at IS NULL AND NOT EXISTS (
    SELECT FROM {outbox_events} WHERE position = ANY ($3) AND processed_at IS NOT NULL)
RETURNING position
"""

# The same where some have: these are open until CLOSE_EVENTS looks at their deliveries, in the same transaction. What
# this statement could read of them may be older than the row. 1 relay, 2 epoch, 3 positions, 4 now.
MARK_HANDLED = """
UPDATE {outbox_events}
SET status = CASE WHEN processed_at IS NULL THEN 'delivered' ELSE 'open' END,
    processed_at = coalesce($4::timestamptz, clock_timestamp()),
    updated_at = coalesce($4::timestamptz, clock_timestamp()),
    lease_relay = NULL, lease_epoch = NULL, error_message = NULL
WHERE position = ANY ($3) AND status = 'leased' AND lease_relay = $1 AND lease_epoch = $2
RETURNING position, status = 'open' AS has_others
"""

# Let events leave the first pass with a delivery for each handler that did not succeed in it. Whether there are
# deliveries of others is returned, as above.
# 1 relay, 2 epoch, 3 positions, 4-12 the deliveries as columns, 13 now.
LEAVE_FIRST_PASS = """
WITH held AS MATERIALIZED (
  SELECT position, event_id, not_before, processed_at IS NOT NULL AS has_others FROM {outbox_events}
  WHERE position = ANY ($3) AND status = 'leased' AND lease_relay = $1 AND lease_epoch = $2
  ORDER BY position FOR UPDATE
), outcome AS MATERIALIZED (
  SELECT held.event_id, held.not_before, held.has_others, outcome.* FROM unnest(
    $4::bigint[], $5::text[], $6::text[], $7::text[], $8::int[], $9::int[], $10::text[], $11::float8[], $12::text[]
  ) AS outcome (position, handler, order_key, status, attempts, takeovers, on_dead, delay_seconds, error_message)
  JOIN held USING (position)
), written AS (
  INSERT INTO {outbox_deliveries} (event_id, position, handler, order_key, status, attempts, takeovers, on_dead,
                                   available_at, lease_relay, lease_epoch, error_message)
  SELECT event_id, position, handler, order_key, status, attempts, takeovers, on_dead,
         greatest(not_before, coalesce($13::timestamptz, clock_timestamp()) + delay_seconds * interval '1 second'),
         CASE WHEN status = 'leased' THEN $1::uuid END, CASE WHEN status = 'leased' THEN $2::bigint END,
         error_message
  FROM outcome
  -- An event that was made pending by hand has deliveries already.
  ON CONFLICT (event_id, handler) DO UPDATE
  SET status = excluded.status, attempts = excluded.attempts, takeovers = excluded.takeovers, alone = false,
      on_dead = excluded.on_dead, available_at = excluded.available_at, updated_at = excluded.updated_at,
      lease_relay = excluded.lease_relay, lease_epoch = excluded.lease_epoch, error_message = excluded.error_message
), passed_over AS (
  INSERT INTO {outbox_receipts} (event_id, handler, outcome)
  SELECT event_id, handler, 'skipped' FROM outcome WHERE status = 'dead' AND on_dead = 'continue'
  ON CONFLICT DO NOTHING
), total AS (
  SELECT position, max(attempts) AS attempts, max(error_message) AS error_message,
         CASE WHEN bool_or(status IN ('waiting', 'leased')) THEN 'open'
              WHEN bool_or(status = 'dead') THEN 'dead' ELSE 'delivered' END AS status,
         bool_or(has_others) AS has_others
  FROM outcome GROUP BY position
)
UPDATE {outbox_events} AS event
SET status = total.status,
    processed_at = CASE WHEN total.status <> 'open' THEN coalesce($13::timestamptz, clock_timestamp()) END,
    updated_at = coalesce($13::timestamptz, clock_timestamp()),
    retry_count = greatest(event.retry_count, total.attempts),
    error_message = CASE WHEN total.status <> 'delivered' THEN coalesce(total.error_message, event.error_message) END,
    lease_relay = NULL, lease_epoch = NULL
FROM total
WHERE event.position = total.position
RETURNING event.position, total.has_others
"""  # noqa: S105 - no password, a pass over events

# Lock the events of deliveries that are about to be settled: of two relays that settle the last two
# deliveries of one event, the second must see what the first did. 1 positions.
LOCK_EVENTS = """
SELECT FROM {outbox_events} WHERE position = ANY ($1) ORDER BY position FOR UPDATE
"""

# Write how deliveries went; nothing comes back where the lease does not hold. What is written again, since the answer
# was lost, must not meet the next attempt, which this relay may have taken meanwhile: a failure counts only where it is
# one more.
SETTLE_DELIVERIES = Statement(
    f"""
WITH {LEASE}, outcome AS MATERIALIZED (
  SELECT * FROM unnest(:event_ids::uuid[], :handlers::text[], :states::text[], :attempts::int[], :on_dead::text[],
                       :delays::float8[], :errors::text[])
    AS outcome (event_id, handler, status, attempts, on_dead, delay_seconds, error_message)
  WHERE EXISTS (SELECT FROM lease)
), settled AS (
  UPDATE {{outbox_deliveries}} AS delivery
  SET status = outcome.status, attempts = outcome.attempts, on_dead = outcome.on_dead,
      error_message = outcome.error_message, alone = false, lease_relay = NULL, lease_epoch = NULL,
      available_at = {NOW} + outcome.delay_seconds * interval '1 second', updated_at = {NOW}
  FROM outcome
  WHERE delivery.event_id = outcome.event_id AND delivery.handler = outcome.handler
    AND delivery.status = 'leased' AND delivery.lease_relay = :relay AND delivery.lease_epoch = :epoch
    AND (outcome.status = 'done' OR outcome.attempts > delivery.attempts)
  RETURNING delivery.event_id, delivery.handler, delivery.status, delivery.on_dead
), passed_over AS (
  INSERT INTO {{outbox_receipts}} (event_id, handler, outcome)
  SELECT event_id, handler, 'skipped' FROM settled WHERE status = 'dead' AND on_dead = 'continue'
  ON CONFLICT DO NOTHING
)
SELECT true AS held FROM lease
"""  # noqa: S608 - the fragments are ours
)

# Give events that have left the first pass the status that their deliveries now make. For each event its deliveries are
# probed: joined, the server reads all that there are, once it plans for arrays of any length. 1 positions, 2 now.
CLOSE_EVENTS = """
UPDATE {outbox_events} AS event
SET (status, processed_at, updated_at, retry_count, error_message) = (
  SELECT total.status, CASE WHEN total.status <> 'open' THEN coalesce($2::timestamptz, clock_timestamp()) END,
         coalesce($2::timestamptz, clock_timestamp()), greatest(event.retry_count, total.attempts),
         CASE WHEN total.status <> 'delivered' THEN coalesce(total.error_message, event.error_message) END
  FROM (
    -- One that was made pending by hand may have none.
    SELECT max(attempts) AS attempts,
           CASE WHEN bool_or(delivery.status IN ('waiting', 'leased')) THEN 'open'
                WHEN bool_or(delivery.status = 'dead') THEN 'dead' ELSE 'delivered' END AS status,
           (array_agg(delivery.error_message ORDER BY delivery.updated_at DESC)
              FILTER (WHERE delivery.error_message IS NOT NULL))[1] AS error_message
    FROM {outbox_deliveries} AS delivery WHERE delivery.event_id = event.event_id) AS total)
WHERE event.position = ANY ($1) AND event.status IN ('open', 'dead', 'delivered')
"""

# Give events back as they were. 1 relay, 2 epoch, 3 positions, 4 now.
RELEASE_EVENTS = """
UPDATE {outbox_events}
SET status = 'pending', lease_relay = NULL, lease_epoch = NULL,
    updated_at = coalesce($4::timestamptz, clock_timestamp())
WHERE position = ANY ($3) AND status = 'leased' AND lease_relay = $1 AND lease_epoch = $2
RETURNING position
"""

# Give deliveries back as they were; it returns nothing where the lease does not hold.
RELEASE_DELIVERIES = Statement(
    f"""
WITH {LEASE}, released AS (
  UPDATE {{outbox_deliveries}} AS delivery
  SET status = 'waiting', alone = false, lease_relay = NULL, lease_epoch = NULL, updated_at = {NOW}
  FROM unnest(:event_ids::uuid[], :handlers::text[]) AS given (event_id, handler)
  WHERE delivery.event_id = given.event_id AND delivery.handler = given.handler
    AND status = 'leased' AND lease_relay = :relay AND lease_epoch = :epoch AND EXISTS (SELECT FROM lease)
)
SELECT true AS held FROM lease
"""  # noqa: S608 - the fragments are ours
)
