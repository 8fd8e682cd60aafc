"""Events that came through a queue: stored for that queue's handlers, never for relays' own and never published (T3).

Such an event is never `pending`: it is stored with a delivery for each handler that is due for it there. What a queue
is subscribed to is written `queue/event_type`, which no event's name can be.
"""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import like

# Store events, in the order in which they came, each with the deliveries of its queue. Where the event is there
# already, only the deliveries are added that it lacks. Returned is what is there now, and then the deliveries; what is
# missing was either stored by somebody else at this moment, or has the number of another event of its aggregate. No
# deliveries are written from the first that is missing on: they are for the next round, or they would precede its own.
#
# A delivery has its event's position, as long as all that the queue brings is new. What is there already got its
# position from somebody else, maybe in another order, so then the deliveries have numbers of their own from the same
# sequence: each batch of a queue comes after the one before. Numbers are drawn first and dealt out by size, so that it
# does not matter in which order the server draws them.
#
# What has been delivered already is open again. What is in its first pass, where one database publishes and consumes,
# stays there with `processed_at` as a sign, in the row that its mark locks, that it has deliveries of others. Headers
# say which queues have brought an event, so that a handler that comes later can be given its queue's past.
# 1-10 the events as columns, 11 queue, 12 now.
_STORE_CONSUMED = """
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::int[], $4::text[], $5::uuid[], $6::bigint[], $7::text[], $8::text[],
                       $9::timestamptz[], $10::text[]) WITH ORDINALITY
    AS event (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version, payload, headers,
              occurred_at, aggregate_key, number)
), due AS MATERIALIZED (
  SELECT DISTINCT given.event_type, subscription.name, subscription.ordered
  FROM (SELECT DISTINCT event_type FROM given) AS given
  JOIN {outbox_subscriptions} AS subscription
    ON subscription.retired_at IS NULL AND EXISTS (
      SELECT FROM unnest(subscription.patterns) AS pattern
      WHERE starts_with(pattern, $11 || '/')
        AND given.event_type LIKE <like>)
), present AS MATERIALIZED (
  SELECT event.event_id, event.position, event.status,
         coalesce(headers->>'consumed_from' = $11, false) OR coalesce(headers->'also_consumed_from' ? $11, false)
           AS is_noted
  FROM {outbox_events} AS event
  WHERE event.event_id = ANY ($1) ORDER BY position FOR UPDATE
), stored AS (
  INSERT INTO {outbox_events} (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
                               payload, headers, occurred_at, aggregate_key, status, processed_at)
  SELECT event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
         payload::jsonb, headers::jsonb || jsonb_build_object('consumed_from', $11), occurred_at, aggregate_key,
         CASE WHEN event_type IN (SELECT event_type FROM due) THEN 'open' ELSE 'delivered' END,
         CASE WHEN event_type IN (SELECT event_type FROM due) THEN NULL
              ELSE coalesce($12::timestamptz, clock_timestamp()) END
  FROM given WHERE event_id NOT IN (SELECT event_id FROM present) ORDER BY number
  ON CONFLICT DO NOTHING
  RETURNING event_id, position
), found AS MATERIALIZED (
  SELECT event_id, position FROM present UNION ALL SELECT event_id, position FROM stored
), missing AS MATERIALIZED (
  SELECT coalesce(min(number), cardinality($1) + 1) AS number FROM given
  WHERE event_id NOT IN (SELECT event_id FROM found)
), place AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY position) AS number, position FROM (
    SELECT nextval((SELECT pg_get_serial_sequence('{outbox_events}', 'position')::regclass)) AS position
    FROM given WHERE EXISTS (SELECT FROM present)) AS drawn
), written AS (
  INSERT INTO {outbox_deliveries} (event_id, position, handler, order_key)
  SELECT given.event_id, coalesce(place.position, found.position), due.name,
         CASE WHEN due.ordered AND aggregate_id IS NOT NULL THEN aggregate_type || ':' || aggregate_id
              ELSE given.event_id::text END
  FROM given JOIN found USING (event_id) JOIN due USING (event_type) LEFT JOIN place USING (number)
  WHERE given.number < (SELECT number FROM missing)
  ORDER BY number
  ON CONFLICT DO NOTHING
  RETURNING event_id, handler, order_key
), reopened AS (
  UPDATE {outbox_events}
  SET headers = CASE WHEN event_id IN (SELECT event_id FROM present WHERE is_noted) THEN headers
                     ELSE headers || jsonb_build_object(
                       'also_consumed_from', coalesce(headers->'also_consumed_from', '[]') || to_jsonb($11)) END,
      status = CASE WHEN status IN ('pending', 'leased') OR event_id NOT IN (SELECT event_id FROM written) THEN status
                    ELSE 'open' END,
      processed_at = CASE WHEN event_id NOT IN (SELECT event_id FROM written) THEN processed_at
                          WHEN status IN ('pending', 'leased') THEN coalesce($12::timestamptz, clock_timestamp()) END,
      updated_at = coalesce($12::timestamptz, clock_timestamp())
  WHERE position = ANY (ARRAY(
    SELECT position FROM present
    WHERE NOT is_noted OR status <> 'open' AND event_id IN (SELECT event_id FROM written)))
)
SELECT event_id, NULL AS handler, NULL AS order_key FROM found
UNION ALL
SELECT event_id, handler, order_key FROM written
"""
STORE_CONSUMED = _STORE_CONSUMED.replace("<like>", like("substr(pattern, length($11) + 2)"))

# Which of these events are there. 1 event ids.
PRESENT = """
SELECT event_id FROM {outbox_events} WHERE event_id = ANY ($1)
"""
