"""Deliveries: taken at their turn, settled, given back, taken over from the dead (R3, R4, R5, R7, R7b, R9)."""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import IS_SKIPPED, LEASE, MOMENTS, NOW, SIZE, like
from outbox_kernel.infrastructure.outbox.sql.named import Statement
from outbox_kernel.infrastructure.outbox.sql.passing import is_ahead

# Take deliveries whose turn it is: per order_key and handler the lowest unsettled one, if it is waiting and
# its time has come, with those that follow it.
#
# - The scan hops from head to head, so that a thousand parked behind a dead one cost a single probe, and what others
#   are to run costs nothing. Of each handler it hops to one head after the other's, from `after` on, so that none comes
#   before the rest. It looks at `heads_max`, and takes `turns_max` turns of `turn_max` each.
# - Turns that are known are looked at whatever the scan hops over: a probe each, however much is not cleaned up.
# - An ability is a handler, an event type and the newest version that we can run, and its former name, under which a
#   relay of older code may hold what comes before. `on_dead` is what its death means, since a run that kills the
#   process never comes to say it.
# - Of handlers that run code, which may kill the process, what was taken over twice is a suspect.
# - What is unnested is selected first: of an array that it knows the planner counts the elements, prefers a plan for
#   just these, and plans each call anew, which takes twice as long as to run it.
# - What has a receipt that it is skipped is taken like the rest, since later ones wait for it, and not run; so it may
#   be of a type or a version that nobody here can run. What is to run behind it is for the next time: an operator may
#   say otherwise in this moment, and then it is to run before.
# - Nothing is taken whose event the handler has yet to come to, since its cursor goes back or an operator has skipped
#   it: what comes earlier is before it, and whoever reads it would find no trace of it.
# - The last row is the scan's own report: without it, one that found nothing could not say why.
_TAKE = """
WITH RECURSIVE <lease>, hop AS (
  SELECT first.* FROM unnest((SELECT :runnable::text[]), (SELECT :after::text[])) AS runnable (handler, after)
  CROSS JOIN LATERAL (
    SELECT order_key, handler, position, event_id, status, available_at, takeovers FROM {outbox_deliveries}
    WHERE NOT settled AND handler = runnable.handler AND order_key > runnable.after AND EXISTS (SELECT FROM lease)
    ORDER BY order_key, position LIMIT 1) AS first
  UNION ALL
  SELECT next.* FROM hop CROSS JOIN LATERAL (
    SELECT order_key, handler, position, event_id, status, available_at, takeovers FROM {outbox_deliveries}
    WHERE NOT settled AND handler = hop.handler AND order_key > hop.order_key
    ORDER BY order_key, position LIMIT 1) AS next
), known AS (
  SELECT first.*
  FROM unnest((SELECT :known_handlers::text[]), (SELECT :known_keys::text[])) AS turn (handler, order_key)
  CROSS JOIN LATERAL (
    SELECT order_key, handler, position, event_id, status, available_at, takeovers FROM {outbox_deliveries}
    WHERE NOT settled AND handler = turn.handler AND order_key = turn.order_key AND EXISTS (SELECT FROM lease)
    ORDER BY order_key, position LIMIT 1) AS first
), head AS MATERIALIZED (
  SELECT *, available_at <= <now> AS is_due FROM (
    (SELECT * FROM hop LIMIT :heads_max) UNION ALL SELECT * FROM known) AS found
), ability AS MATERIALIZED (
  SELECT *, <like> AS pattern
  FROM unnest((SELECT :handlers::text[]), (SELECT :types::text[]), (SELECT :versions::int[]), (SELECT :former::text[]),
              (SELECT :on_dead::text[])) AS ability (handler, event_type, event_version, former, on_dead)
), ours AS MATERIALIZED (
  SELECT head.*, head.takeovers >= 2 AND head.handler = ANY (:run_code::text[]) AS suspect
  FROM head JOIN {outbox_events} AS event USING (event_id)
  WHERE head.status = 'waiting' AND NOT EXISTS (
    -- Under a retired name nothing may run: what comes before it may have the handler's next name already.
    SELECT FROM {outbox_subscriptions}
    WHERE name = head.handler AND (paused_at IS NOT NULL OR retired_at IS NOT NULL))
  AND (NOT is_due OR NOT <head is ahead>) AND EXISTS (
    SELECT FROM ability WHERE ability.handler = head.handler
      AND ((event.event_type LIKE ability.pattern AND event.event_version <= ability.event_version)
        OR <head is skipped>)
      AND (
        SELECT true FROM {outbox_deliveries} AS before WHERE NOT before.settled
          AND before.order_key = head.order_key AND before.handler = ability.former
          AND before.position < head.position LIMIT 1) IS NULL)
), taken AS MATERIALIZED (
  SELECT locked.* FROM (
    SELECT event_id, handler FROM ours
    WHERE is_due AND suspect = :suspects LIMIT :turns_max) AS chosen
  CROSS JOIN LATERAL (
    SELECT order_key, handler, position FROM {outbox_deliveries}
    WHERE event_id = chosen.event_id AND handler = chosen.handler
      -- Once more, of the row as it is when it is locked: another relay may have failed with it meanwhile.
      AND status = 'waiting' AND available_at <= <now>
    LIMIT 1 FOR UPDATE SKIP LOCKED) AS locked
), follower AS MATERIALIZED (
  SELECT next.event_id, next.handler, next.position, next.is_skipped,
         bool_and(next.may_run) OVER turn AND (next.is_skipped OR NOT bool_or(next.is_skipped) OVER turn) AS may_run
  FROM taken CROSS JOIN LATERAL (
    SELECT delivery.*, <delivery is skipped> AS is_skipped, delivery.position = taken.position OR (
             delivery.status = 'waiting' AND NOT (takeovers >= 2 AND delivery.handler = ANY (:run_code::text[]))
             AND delivery.available_at <= <now> AND NOT <delivery is ahead>
             AND EXISTS (
               SELECT FROM ability JOIN {outbox_events} AS event ON event.event_id = delivery.event_id
               WHERE ability.handler = delivery.handler
                 AND ((event.event_type LIKE ability.pattern AND event.event_version <= ability.event_version)
                   OR <delivery is skipped>)
                 AND (
                   SELECT true FROM {outbox_deliveries} AS before WHERE NOT before.settled
                     AND before.order_key = delivery.order_key AND before.handler = ability.former
                     AND before.position < delivery.position LIMIT 1) IS NULL)) AS may_run
    FROM {outbox_deliveries} AS delivery
    WHERE NOT settled AND delivery.order_key = taken.order_key AND delivery.handler = taken.handler
      AND delivery.position >= taken.position
    ORDER BY delivery.position LIMIT :turn_max) AS next
  WINDOW turn AS (PARTITION BY next.order_key, next.handler ORDER BY next.position)
), fitting AS (
  -- By position over all turns, so that what is left is the end of each.
  SELECT event_id, handler, is_skipped FROM (
    SELECT *, sum(bytes) OVER (ORDER BY position, handler) - bytes AS bytes_before FROM (
      SELECT follower.event_id, follower.handler, follower.position, follower.is_skipped, <size> AS bytes
      FROM follower JOIN {outbox_events} AS event USING (event_id) WHERE follower.may_run) AS sized) AS measured
  WHERE bytes_before < :bytes_max
), claimed AS (
  UPDATE {outbox_deliveries} AS delivery
  SET status = 'leased', lease_relay = :relay, lease_epoch = :epoch, alone = :suspects,
      on_dead = (SELECT on_dead FROM ability WHERE ability.handler = delivery.handler LIMIT 1),
      updated_at = <now>
  FROM fitting
  WHERE delivery.event_id = fitting.event_id AND delivery.handler = fitting.handler
    AND delivery.status = 'waiting'
  RETURNING delivery.event_id, delivery.handler, delivery.order_key, delivery.position, delivery.attempts,
            delivery.takeovers, fitting.is_skipped
)
SELECT event.position, event.event_id, event_type, event_version, aggregate_type, aggregate_id,
       aggregate_version, payload::text, headers::text, <moments>, claimed.takeovers,
       aggregate_key, claimed.handler, claimed.order_key, claimed.position AS place, claimed.attempts,
       claimed.is_skipped,
       NULL::text AS report
FROM claimed JOIN {outbox_events} AS event USING (event_id)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, json_build_object(
  'held', EXISTS (SELECT FROM lease),
  'seen', (SELECT count(*) FROM head),
  'more', (SELECT count(*) FROM follower WHERE may_run) > (SELECT count(*) FROM fitting),
  'last', (
    SELECT coalesce(json_object_agg(handler, last), '{{}}')
    FROM (SELECT handler, max(order_key) AS last FROM head GROUP BY handler) AS ends),
  'suspects', EXISTS (SELECT FROM ours WHERE suspect AND is_due),
  'next_in_seconds', (SELECT extract(epoch FROM min(available_at) - <now>) FROM ours WHERE NOT is_due))::text
"""

# What cannot be read is told by a column that is null.
TAKE_DELIVERIES = Statement(
    _TAKE.replace("<lease>", LEASE)
    .replace("<like>", like("ability.event_type"))
    .replace("<moments>", MOMENTS)
    .replace("<size>", SIZE)
    .replace("<head is skipped>", IS_SKIPPED.replace("delivery.", "head."))
    .replace("<delivery is skipped>", IS_SKIPPED)
    .replace("<head is ahead>", is_ahead("head"))
    .replace("<delivery is ahead>", is_ahead("delivery"))
    .replace("<now>", NOW)
)

# Write how deliveries went; nothing comes back where the lease does not hold. What is written again, since the answer
# was lost, must not meet the next attempt, which this relay may have taken meanwhile: a failure counts only where it is
# one more. What was taken to be skipped waits again if an operator has said otherwise while it was taken.
SETTLE_DELIVERIES = Statement(
    f"""
WITH {LEASE}, outcome AS MATERIALIZED (
  SELECT * FROM unnest(:event_ids::uuid[], :handlers::text[], :states::text[], :attempts::int[], :on_dead::text[],
                       :delays::float8[], :errors::text[])
    AS outcome (event_id, handler, status, attempts, on_dead, delay_seconds, error_message)
  WHERE EXISTS (SELECT FROM lease)
), settled AS (
  UPDATE {{outbox_deliveries}} AS delivery
  SET status = CASE WHEN outcome.status = 'skipped' AND NOT {IS_SKIPPED} THEN 'waiting' ELSE outcome.status END,
      attempts = outcome.attempts, on_dead = outcome.on_dead,
      error_message = outcome.error_message, alone = false, lease_relay = NULL, lease_epoch = NULL,
      available_at = {NOW} + outcome.delay_seconds * interval '1 second', updated_at = {NOW}
  FROM outcome
  WHERE delivery.event_id = outcome.event_id AND delivery.handler = outcome.handler
    AND delivery.status = 'leased' AND delivery.lease_relay = :relay AND delivery.lease_epoch = :epoch
    AND (outcome.status IN ('done', 'skipped') OR outcome.attempts > delivery.attempts)
  RETURNING delivery.event_id, delivery.handler, delivery.status, delivery.on_dead
), passed_over AS (
  INSERT INTO {{outbox_receipts}} (event_id, handler, outcome)
  SELECT event_id, handler, 'skipped' FROM settled WHERE status = 'dead' AND on_dead = 'continue'
  ON CONFLICT DO NOTHING
)
SELECT true AS held FROM lease
"""  # noqa: S608 - the fragments are ours
)

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

# Give back what was claimed under epochs that are over, by the relay itself: nobody is charged. Only after its
# lease row was deleted or changed, which waits for every claim under way, even one whose answer nobody hears.
GIVE_BACK_DELIVERIES = Statement(
    """
UPDATE {outbox_deliveries}
SET status = 'waiting', alone = false, lease_relay = NULL, lease_epoch = NULL,
    updated_at = <now>
WHERE status = 'leased' AND lease_relay = :relay AND lease_epoch <= :epoch
""".replace("<now>", NOW)
)

# Make what nobody living holds claimable again. Only from the lease that was seen to be dead: while this waits for
# a row, another sweep may free it, and a relay claim it whose own row is younger than what this statement sees.
# What ran alone when its relay vanished is charged, and is dead the third time: a suspect has two takeovers, and is
# only ever taken alone.
TAKE_OVER_DELIVERIES = Statement(
    """
WITH gone AS MATERIALIZED (
  SELECT event_id, handler, lease_relay, lease_epoch FROM {outbox_deliveries} AS delivery
  WHERE status = 'leased' AND NOT EXISTS (
    SELECT FROM {outbox_relays} AS relay
    WHERE relay.id = delivery.lease_relay AND relay.epoch = delivery.lease_epoch)
), found AS (
  UPDATE {outbox_deliveries} AS delivery
  SET status = CASE WHEN alone AND takeovers >= 4 THEN 'dead' ELSE 'waiting' END,
      attempts = attempts + CASE WHEN alone THEN 1 ELSE 0 END,
      error_message = CASE WHEN alone THEN 'kills the process' ELSE error_message END,
      takeovers = takeovers + 1, alone = false, lease_relay = NULL, lease_epoch = NULL,
      available_at = <now>,
      updated_at = <now>
  FROM gone
  WHERE delivery.event_id = gone.event_id AND delivery.handler = gone.handler AND delivery.status = 'leased'
    AND delivery.lease_relay = gone.lease_relay AND delivery.lease_epoch = gone.lease_epoch
  RETURNING delivery.event_id, delivery.handler, delivery.status, delivery.on_dead
), passed_over AS (
  INSERT INTO {outbox_receipts} (event_id, handler, outcome)
  SELECT event_id, handler, 'skipped' FROM found WHERE status = 'dead' AND on_dead = 'continue'
  ON CONFLICT DO NOTHING
)
SELECT event.position, event_id, found.handler, found.status
FROM found JOIN {outbox_events} AS event USING (event_id)
""".replace("<now>", NOW)
)
