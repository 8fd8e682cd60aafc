"""Operating: what an operator changes by hand (O1, R4, R6, R7).

Each of these runs in a transaction that has locked, in this order: the operators' turn, the events by position,
the deliveries by position. Relays lock events and deliveries in the same order.
"""

from __future__ import annotations

from outbox_kernel.kernel.errors import SecondCommit

# One operator at a time, so that two of them never wait for each other in a ring.
TAKE_TURN = """
SELECT pg_advisory_xact_lock(hashtextextended('outbox-kernel operate {outbox_events}', 0))
"""

# The server's time, by which all of this goes. 1 now.
CLOCK = """
SELECT coalesce($1::timestamptz, clock_timestamp())
"""

# Wake the relays, once what there is to see has been committed. 1 channel.
WAKE = """
SELECT pg_notify($1, 'deliveries')
"""

# What is left of a run that would have committed a second effect, as its error says: the first one is there.
_HALF_DONE = f"""delivery.error_message LIKE '{SecondCommit.__name__}: %' AND EXISTS (
      SELECT FROM {{outbox_receipts}} AS first
      WHERE first.event_id = delivery.event_id AND first.handler = delivery.handler AND first.outcome = 'done')"""

# Choose deliveries, in the order of their turns, with the positions of their events and whether they are half done.
# 1 event id, 2 handler, 3 event types as a pattern, 4 aggregate types, 5 aggregate ids (each null: any), 6 statuses,
# 7 whether those that wait after a failure are meant too.
CHOOSE_DELIVERIES = f"""
SELECT event.position, delivery.event_id, delivery.handler, delivery.status,
       coalesce({_HALF_DONE}, false) AS half_done
FROM {{outbox_deliveries}} AS delivery JOIN {{outbox_events}} AS event USING (event_id)
WHERE ($1::uuid IS NULL OR delivery.event_id = $1)
  AND ($2::text IS NULL OR delivery.handler = $2)
  AND ($3::text IS NULL OR event.event_type ~ $3)
  AND ($4::text[] IS NULL OR event.aggregate_type = ANY ($4))
  AND ($5::uuid[] IS NULL OR event.aggregate_id = ANY ($5))
  AND (delivery.status = ANY ($6::text[]) OR ($7 AND delivery.status = 'waiting' AND delivery.attempts > 0))
ORDER BY delivery.position, delivery.handler
"""  # noqa: S608 - the rule is ours

# Hold deliveries against claims, in the order in which claims take them. 1 event ids, 2 handlers.
LOCK_DELIVERIES = """
SELECT FROM {outbox_deliveries}
WHERE (event_id, handler) IN (SELECT * FROM unnest($1::uuid[], $2::text[]))
ORDER BY position, handler FOR UPDATE
"""

# Let deliveries run again from the start, their skipping undone. What was suspected of killing processes stays a
# suspect, or it would take its neighbours along first. What is half done would meet its receipt, and be done with the
# other half missing: it is left. 1 event ids, 2 handlers, 3 now.
_UNLESS_HALF_DONE = " AND NOT wanted.half_done"
RETRY = f"""
WITH wanted AS MATERIALIZED (
  SELECT delivery.event_id, delivery.handler, coalesce({_HALF_DONE}, false) AS half_done
  FROM {{outbox_deliveries}} AS delivery
  JOIN unnest($1::uuid[], $2::text[]) AS chosen (event_id, handler) USING (event_id, handler)
), retried AS (
  UPDATE {{outbox_deliveries}} AS delivery
  SET status = 'waiting', attempts = 0, takeovers = least(delivery.takeovers, 2), alone = false,
      error_message = NULL, lease_relay = NULL, lease_epoch = NULL,
      available_at = greatest(coalesce($3::timestamptz, clock_timestamp()), (
        SELECT not_before FROM {{outbox_events}} AS event WHERE event.event_id = delivery.event_id)),
      updated_at = coalesce($3::timestamptz, clock_timestamp())
  FROM wanted
  WHERE delivery.event_id = wanted.event_id AND delivery.handler = wanted.handler
    AND delivery.status IN ('waiting', 'dead', 'skipped'){_UNLESS_HALF_DONE}
  RETURNING delivery.event_id, delivery.handler, wanted.half_done
), allowed_again AS (
  DELETE FROM {{outbox_receipts}} AS receipt USING retried
  WHERE receipt.event_id = retried.event_id AND receipt.handler = retried.handler
    AND (receipt.outcome = 'skipped' OR retried.half_done)
)
SELECT event_id, handler FROM retried
"""  # noqa: S608 - the rule is ours

# The same, and what is half done too: its first effect happens once more. 1 event ids, 2 handlers, 3 now.
RETRY_AGAIN = RETRY.replace(_UNLESS_HALF_DONE, "")

# Let deliveries go without an effect, for good: the receipt keeps a relay that was stopped from adding it later.
# What a relay holds is left, unless that relay is no more. 1 event ids, 2 handlers, 3 now.
SKIP = """
WITH passed AS (
  UPDATE {outbox_deliveries} AS delivery
  SET status = 'skipped', alone = false, lease_relay = NULL, lease_epoch = NULL,
      updated_at = coalesce($3::timestamptz, clock_timestamp())
  FROM unnest($1::uuid[], $2::text[]) AS wanted (event_id, handler)
  WHERE delivery.event_id = wanted.event_id AND delivery.handler = wanted.handler
    AND (delivery.status IN ('waiting', 'dead') OR (delivery.status = 'leased' AND NOT EXISTS (
      SELECT FROM {outbox_relays} AS relay
      WHERE relay.id = delivery.lease_relay AND relay.epoch = delivery.lease_epoch
        AND relay.expires_at > coalesce($3::timestamptz, clock_timestamp()))))
  RETURNING delivery.event_id, delivery.handler
), noted AS (
  INSERT INTO {outbox_receipts} (event_id, handler, outcome) SELECT event_id, handler, 'skipped' FROM passed
  ON CONFLICT DO NOTHING
)
SELECT event_id, handler FROM passed
"""

# Give events the status, the count and the error that their deliveries now make, exactly. 1 positions, 2 now.
RECOUNT_EVENTS = """
UPDATE {outbox_events} AS event
SET status = total.status,
    processed_at = CASE WHEN total.status = 'open' THEN NULL
                        WHEN event.status = total.status THEN event.processed_at
                        ELSE coalesce($2::timestamptz, clock_timestamp()) END,
    updated_at = coalesce($2::timestamptz, clock_timestamp()),
    retry_count = total.attempts,
    error_message = CASE WHEN total.status <> 'delivered' THEN total.error_message END
FROM (
  SELECT event_id, max(attempts) AS attempts,
         CASE WHEN bool_or(status IN ('waiting', 'leased')) THEN 'open'
              WHEN bool_or(status = 'dead') THEN 'dead' ELSE 'delivered' END AS status,
         (array_agg(error_message ORDER BY updated_at DESC)
            FILTER (WHERE error_message IS NOT NULL AND status IN ('waiting', 'leased', 'dead')))[1] AS error_message
  FROM {outbox_deliveries}
  WHERE event_id IN (SELECT event_id FROM {outbox_events} WHERE position = ANY ($1))
  GROUP BY event_id
) AS total
WHERE event.position = ANY ($1) AND event.event_id = total.event_id
  AND event.status IN ('open', 'dead', 'delivered')
"""

# The bounds of what there is to walk.
BOUNDS = """
SELECT coalesce(min(position), 0) AS first, coalesce(max(position), 0) AS last FROM {outbox_events}
"""

# Look through one window of the past for the events of a handler: its own, or what its queue has brought. Of what came
# before queues were noted only the delivery tells. The last row says where the window ends.
# 1 event types as a pattern, 2 since when, 3 after position, 4 up to position, 5 events at most, 6 handler, 7 event
# types of its queues as a pattern, null where it has none.
PAST_EVENTS = """
WITH seen AS MATERIALIZED (
  SELECT position, event_id, status, created_at, event_type,
         headers->>'consumed_from' AS queue, headers->'also_consumed_from' AS other_queues
  FROM {outbox_events} WHERE position > $3 AND position <= $4 ORDER BY position LIMIT $5
)
(
  SELECT position, status FROM seen
  WHERE created_at >= $2 AND (
    coalesce(queue || '/', '') || event_type ~ $1
    OR EXISTS (
      SELECT FROM jsonb_path_query(other_queues, '$[*]') AS other (queue)
      WHERE (other.queue #>> '{{}}') || '/' || event_type ~ $1)
    OR event_type ~ $7 AND EXISTS (
      SELECT FROM {outbox_deliveries} AS delivery WHERE delivery.event_id = seen.event_id AND delivery.handler = $6))
  ORDER BY position
)
UNION ALL
SELECT max(position), NULL FROM seen
"""

# Make past events due for a handler: those it never had, and with `again` those it has done.
# 1 handler, 2 whether it is ordered, 3 positions, 4 again, 5 now.
REPLAY = """
WITH held AS MATERIALIZED (
  SELECT position, event_id, aggregate_type, aggregate_id, not_before FROM {outbox_events}
  WHERE position = ANY ($3) AND status IN ('open', 'delivered', 'dead') ORDER BY position FOR UPDATE
), due AS MATERIALIZED (
  SELECT held.* FROM held
  LEFT JOIN {outbox_deliveries} AS delivery ON delivery.event_id = held.event_id AND delivery.handler = $1
  LEFT JOIN {outbox_receipts} AS receipt ON receipt.event_id = held.event_id AND receipt.handler = $1
  WHERE (delivery.event_id IS NULL AND receipt.event_id IS NULL)
     OR ($4 AND coalesce(delivery.status, 'done') = 'done' AND coalesce(receipt.outcome, 'done') = 'done')
), allowed_again AS (
  DELETE FROM {outbox_receipts} AS receipt USING due WHERE receipt.event_id = due.event_id AND receipt.handler = $1
), written AS (
  INSERT INTO {outbox_deliveries} AS present (event_id, position, handler, order_key, available_at)
  SELECT event_id, position, $1,
         CASE WHEN $2 AND aggregate_id IS NOT NULL AND not_before IS NULL
              THEN aggregate_type || ':' || aggregate_id ELSE event_id::text END,
         greatest(not_before, coalesce($5::timestamptz, clock_timestamp()))
  FROM due ORDER BY position
  ON CONFLICT (event_id, handler) DO UPDATE
  SET status = 'waiting', attempts = 0, takeovers = 0, alone = false, error_message = NULL,
      available_at = excluded.available_at, updated_at = excluded.available_at
  WHERE present.status = 'done'
  RETURNING event_id
)
SELECT position FROM due WHERE event_id IN (SELECT event_id FROM written)
"""

# Give what was made due the order of each aggregate: what queues brought stands in the outbox in the order in which any
# of them was the first. The numbers stay those there are, so that they come before what is younger. What has no number
# in its aggregate keeps its place. 1 handler, 2 positions.
ARRANGE = """
WITH due AS MATERIALIZED (
  SELECT delivery.event_id, order_key, delivery.position,
         row_number() OVER (PARTITION BY order_key ORDER BY delivery.position) AS place,
         row_number() OVER (PARTITION BY order_key ORDER BY aggregate_version) AS number
  FROM {outbox_events} AS event JOIN {outbox_deliveries} AS delivery USING (event_id)
  WHERE event.position = ANY ($2) AND delivery.handler = $1 AND aggregate_version IS NOT NULL
)
UPDATE {outbox_deliveries} AS delivery SET position = wanted.position
FROM due JOIN due AS wanted ON wanted.order_key = due.order_key AND wanted.place = due.number
WHERE due.position <> wanted.position AND delivery.event_id = due.event_id AND delivery.handler = $1
"""

# One subscription, with the live relays that carry it. 1 name, 2 now.
SUBSCRIPTION = """
SELECT name, kind, patterns, ordered, since, paused_at, retired_at, ARRAY(
  SELECT host || ', process ' || process_id FROM {outbox_relays}
  WHERE abilities ? subscription.name AND expires_at > coalesce($2::timestamptz, clock_timestamp())
  ORDER BY started_at) AS carried_by
FROM {outbox_subscriptions} AS subscription WHERE name = $1
"""

# The names there are, for whoever mistyped one.
SUBSCRIPTION_NAMES = """
SELECT name FROM {outbox_subscriptions} ORDER BY name
"""

# Hold a subscription: its deliveries wait. 1 name, 2 now.
PAUSE = """
UPDATE {outbox_subscriptions}
SET paused_at = coalesce($2::timestamptz, clock_timestamp()), revision = revision + 1
WHERE name = $1 AND paused_at IS NULL AND retired_at IS NULL RETURNING name
"""

# Let it go on. 1 name.
RESUME = """
UPDATE {outbox_subscriptions} SET paused_at = NULL, revision = revision + 1
WHERE name = $1 AND paused_at IS NOT NULL RETURNING name
"""

# Hold a subscription against relays that start: they say what they carry once they are seen to live. 1 name.
HOLD_SUBSCRIPTION = """
SELECT FROM {outbox_subscriptions} WHERE name = $1 FOR UPDATE
"""

# Make a subscription due by one of its patterns no more. 1 name, 2 pattern.
RETIRE_PATTERN = """
UPDATE {outbox_subscriptions} SET patterns = array_remove(patterns, $2), revision = revision + 1
WHERE name = $1 AND $2 = ANY (patterns)
RETURNING name
"""

# Make a subscription due for nothing more, unless a live relay carries it. 1 name, 2 now.
RETIRE_UNCARRIED = """
UPDATE {outbox_subscriptions} AS subscription
SET retired_at = coalesce($2::timestamptz, clock_timestamp()), revision = revision + 1
WHERE name = $1 AND retired_at IS NULL AND NOT EXISTS (
  SELECT FROM {outbox_relays}
  WHERE abilities ? subscription.name AND expires_at > coalesce($2::timestamptz, clock_timestamp()))
RETURNING name
"""
