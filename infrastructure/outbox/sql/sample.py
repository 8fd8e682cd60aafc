"""The sample: rows as a week of relays would have left them, written by hand (O2, O3)."""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import NOW, SHARDS, is_due
from outbox_kernel.infrastructure.outbox.sql.named import Statement

# Whether there is anything yet, and whether it is the sample.
IS_EMPTY = Statement("SELECT NOT EXISTS (SELECT FROM {outbox_events}) AS is_empty")
IS_FILLED = Statement("SELECT EXISTS (SELECT FROM {outbox_relays} WHERE id = :relay) AS is_filled")

# Events, in the order of the arrays; each as old as it says.
EVENTS = Statement(f"""
INSERT INTO {{outbox_events}} (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_key,
                               aggregate_version, payload, headers, source, not_before, occurred_at, created_at)
SELECT event_id, event_type, version, aggregate_type, aggregate_id, aggregate_key, aggregate_version, payload::jsonb,
       headers::jsonb, source, CASE WHEN waits THEN at + interval '3 hours' END, at, at
FROM (
  SELECT *, {NOW} - seconds * interval '1 second' AS at
  FROM unnest(:event_ids::uuid[], :types::text[], :versions::int[], :aggregate_types::text[], :aggregate_ids::uuid[],
              :aggregate_keys::text[], :aggregate_versions::bigint[], :payloads::text[], :headers::text[],
              :sources::text[], :waits::bool[], :seconds::float8[]) WITH ORDINALITY
    AS given (event_id, event_type, version, aggregate_type, aggregate_id, aggregate_key, aggregate_version, payload,
              headers, source, waits, seconds, number)) AS event
ORDER BY number RETURNING position, event_id
""")  # noqa: S608 - the rule is ours

# What was written by now is below its floor: the snapshots of the transaction that writes it do not see it.
SERVER = Statement("""
INSERT INTO {outbox_servers} (identifier, floor)
SELECT system_identifier::text, (SELECT max(position) FROM {outbox_events}) FROM pg_control_system() RETURNING number
""")

# A subscription, with its cursors at one reader unless it is retired, and where that stood, step by step.
SUBSCRIPTION = Statement(f"""
WITH given AS MATERIALIZED (
  SELECT {NOW} AS now
), named AS (
  INSERT INTO {{outbox_subscriptions}} (name, kind, patterns, source, ordered, since, paused_at, retired_at)
  SELECT :name, :kind, :patterns::text[], :source, :ordered::bool, now - interval '40 days',
         CASE WHEN :is_paused THEN now - interval '3 hours' END,
         CASE WHEN :is_retired THEN now - interval '2 days' END
  FROM given RETURNING name
), cursor AS (
  INSERT INTO {{outbox_cursors}} (subscription, shard, reader, lease_relay, lease_epoch)
  SELECT name, shard, :reader::uuid, :relay::uuid, CASE WHEN :relay IS NOT NULL THEN 1 END
  FROM named, generate_series(0, {SHARDS - 1}) AS shard WHERE NOT :is_retired
)
INSERT INTO {{outbox_progress}} (reader, number, position, recorded_at, server, events, snapshot)
SELECT :reader::uuid, number - 1, position, now - seconds * interval '1 second', 1, events, pg_current_snapshot()
FROM given, unnest(:positions::bigint[], :seconds::float8[], :events::bigint[]) WITH ORDINALITY
  AS step (position, seconds, events, number)
WHERE NOT :is_retired RETURNING number
""")  # noqa: S608 - the rules are ours

RELAY = Statement(f"""
INSERT INTO {{outbox_relays}} (id, epoch, started_at, expires_at, process_id, host, code_version, abilities, pauses,
                               patterns)
SELECT :relay, 1, now - :age_seconds::float8 * interval '1 second', now + :lease_seconds::float8 * interval '1 second',
       :process_id::int, :host, :code_version, :abilities::text::jsonb, :pauses::text::jsonb, :patterns::text::jsonb
FROM (SELECT {NOW} AS now) AS given RETURNING id
""")  # noqa: S608 - the rule is ours

# Deliveries of events, each as old as it says.
DELIVERIES = Statement(f"""
INSERT INTO {{outbox_deliveries}} (event_id, position, handler, order_key, status, attempts, error_message, created_at,
                                   updated_at, available_at, lease_relay, lease_epoch)
SELECT event_id, event.position, handler, coalesce(aggregate_type || ':' || aggregate_id, event_id::text), status,
       attempts, error, event.created_at, greatest(event.created_at, now - seconds * interval '1 second'),
       now + next_seconds * interval '1 second', relay, CASE WHEN relay IS NOT NULL THEN 1 END
FROM (SELECT {NOW} AS now) AS given,
     unnest(:event_ids::uuid[], :handlers::text[], :states::text[], :attempts::int[], :errors::text[],
            :seconds::float8[], :next_seconds::float8[], :relays::uuid[])
  AS asked (event_id, handler, status, attempts, error, seconds, next_seconds, relay)
JOIN {{outbox_events}} AS event USING (event_id)
RETURNING event_id
""")  # noqa: S608 - the rule is ours
RECEIPTS = Statement("""
INSERT INTO {outbox_receipts} (event_id, handler, outcome)
SELECT * FROM unnest(:event_ids::uuid[], :handlers::text[], :outcomes::text[]) RETURNING event_id
""")

# The next of its progress, as far as all that is there, for those that are at the head. Not in the transaction that has
# written something: what that writes no snapshot of its own sees.
MOVE = Statement(f"""
INSERT INTO {{outbox_progress}} (reader, number, position, server, events, snapshot)
SELECT reader, last.number + 1, head.position, last.server,
       last.events + (SELECT count(*) FROM {{outbox_events}} AS event
                      WHERE event.position > last.position AND {is_due("subscription", "event")}),
       pg_current_snapshot()
FROM (SELECT max(position) AS position FROM {{outbox_events}}) AS head
CROSS JOIN (
  SELECT DISTINCT cursor.reader, subscription.* FROM {{outbox_cursors}} AS cursor
  JOIN {{outbox_subscriptions}} AS subscription ON subscription.name = cursor.subscription
  WHERE subscription.name = ANY (:names::text[]) AND paused_at IS NULL) AS subscription
CROSS JOIN LATERAL (
  SELECT number, position, server, events FROM {{outbox_progress}} AS progress
  WHERE progress.reader = subscription.reader ORDER BY number DESC LIMIT 1) AS last
WHERE last.position < head.position RETURNING number
""")  # noqa: S608 - the rule is ours
RENEW = Statement(f"""
UPDATE {{outbox_relays}} SET renewed_at = {NOW}, expires_at = {NOW} + :lease_seconds::float8 * interval '1 second'
WHERE expires_at > {NOW} RETURNING id
""")  # noqa: S608 - the rule is ours

# What an operator has had run again succeeds, at its turn; and so does what stood behind what was let go.
SUCCEED = Statement(f"""
UPDATE {{outbox_deliveries}} AS delivery SET status = 'done', updated_at = {NOW}, error_message = NULL
WHERE status = 'waiting' AND attempts = 0 AND available_at <= {NOW} AND handler = ANY (:names::text[])
  AND NOT EXISTS (
    SELECT FROM {{outbox_deliveries}} AS earlier
    WHERE NOT earlier.settled AND earlier.handler = delivery.handler AND earlier.order_key = delivery.order_key
      AND earlier.position < delivery.position)
RETURNING event_id
""")  # noqa: S608 - the rule is ours
