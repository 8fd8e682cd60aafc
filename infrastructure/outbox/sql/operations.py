"""Operating: what an operator changes by hand (O1, R4, R6, R7).

Each of these runs in a transaction that has locked, in this order: the operators' turn, the deliveries by position.
Relays lock what they have leased as it comes, so that the two may wait for each other; whom the server ends begins
again.
"""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import (
    FROM_NOW_ON,
    IS_HALF_DONE,
    IS_SKIPPED,
    NOW,
    OPERATORS_TURN,
    UNFINISHED,
    is_due,
    is_of,
    is_passed,
)
from outbox_kernel.infrastructure.outbox.sql.inspection import OF_AGGREGATE
from outbox_kernel.infrastructure.outbox.sql.named import Statement
from outbox_kernel.infrastructure.outbox.sql.passing import OF_CURSOR, is_ahead
from outbox_kernel.kernel.limits import NAME_CHARACTERS_MAX

# One operator at a time, so that two of them never wait for each other in a ring.
TAKE_TURN = Statement(f"SELECT pg_advisory_xact_lock({OPERATORS_TURN})")

# The server's time, by which all of this goes.
CLOCK = Statement(f"SELECT {NOW}")

# Wake the relays, once what there is to see has been committed.
WAKE = Statement("SELECT pg_notify(:channel, 'deliveries')")

# Choose deliveries of these statuses, in the order of their turns, and those that wait after a failure; with the
# skipped ones those that are to be. (Null: any.) What is over is looked through only where somebody asks for it.
CHOOSE_DELIVERIES = Statement(f"""
SELECT delivery.position, delivery.event_id, delivery.handler, delivery.status,
       coalesce({IS_HALF_DONE}, false) AS half_done
FROM (
  SELECT * FROM {{outbox_deliveries}} WHERE event_id = :event_id::uuid
  UNION ALL
  SELECT * FROM {{outbox_deliveries}} WHERE :event_id::uuid IS NULL AND {UNFINISHED}
  UNION ALL
  SELECT * FROM {{outbox_deliveries}}
  WHERE :event_id::uuid IS NULL AND 'skipped' = ANY (:statuses::text[]) AND status = 'skipped'
) AS delivery
CROSS JOIN LATERAL (
  SELECT * FROM {{outbox_events}} AS event WHERE event.event_id = delivery.event_id LIMIT 1) AS event
WHERE (:handler::text IS NULL OR delivery.handler = :handler)
  AND (:pattern::text IS NULL OR event.event_type ~ :pattern)
  AND (:types::text[] IS NULL OR event.aggregate_type = ANY (:types))
  AND (:ids::uuid[] IS NULL OR event.aggregate_id = ANY (:ids))
  AND (delivery.status = ANY (:statuses::text[]) OR (delivery.status = 'waiting' AND (
    (delivery.attempts > 0 AND NOT {IS_SKIPPED}) OR ('skipped' = ANY (:statuses::text[]) AND {IS_SKIPPED}))))
ORDER BY delivery.position, delivery.handler
""")  # noqa: S608 - the rules are ours

# Hold deliveries against claims, in the order in which claims take them.
LOCK_DELIVERIES = Statement("""
SELECT FROM {outbox_deliveries}
WHERE (event_id, handler) IN (SELECT * FROM unnest(:event_ids::uuid[], :handlers::text[]))
ORDER BY position, handler FOR UPDATE
""")

# Let deliveries run again from the start, their skipping undone. What was suspected of killing processes stays a
# suspect, or it would take its neighbours along first. What is half done would meet its receipt, and be done with the
# other half missing: it is left.
_UNLESS_HALF_DONE = " AND NOT wanted.half_done"
_RETRY = f"""
WITH wanted AS MATERIALIZED (
  SELECT delivery.event_id, delivery.handler, coalesce({IS_HALF_DONE}, false) AS half_done
  FROM {{outbox_deliveries}} AS delivery
  JOIN unnest(:event_ids::uuid[], :handlers::text[]) AS chosen (event_id, handler) USING (event_id, handler)
), retried AS (
  UPDATE {{outbox_deliveries}} AS delivery
  SET status = 'waiting', attempts = 0, takeovers = least(delivery.takeovers, 2), alone = false,
      error_message = NULL, lease_relay = NULL, lease_epoch = NULL,
      available_at = coalesce((
        SELECT {FROM_NOW_ON} FROM {{outbox_events}} AS event WHERE event.event_id = delivery.event_id), {NOW}),
      updated_at = {NOW}
  FROM wanted
  WHERE delivery.event_id = wanted.event_id AND delivery.handler = wanted.handler
    AND delivery.status IN ('waiting', 'dead', 'skipped'){_UNLESS_HALF_DONE}
  RETURNING delivery.event_id, delivery.handler, wanted.half_done
), allowed_again AS (
  DELETE FROM {{outbox_receipts}} AS receipt USING retried
  WHERE receipt.event_id = retried.event_id AND {is_of("retried.handler")}
    AND (receipt.outcome = 'skipped' OR retried.half_done)
)
SELECT event_id, handler FROM retried
"""  # noqa: S608 - the rules are ours
RETRY = Statement(_RETRY)

# The same, and what is half done too: its first effect happens once more.
RETRY_AGAIN = Statement(_RETRY.replace(_UNLESS_HALF_DONE, ""))

# Let deliveries go without an effect, for good: the receipt keeps a relay that was stopped from adding it later.
# What a relay holds is left, unless that relay is no more. What the handler has yet to come to keeps its turn, by which
# whoever reads the event leaves it to that, and is skipped then.
SKIP = Statement(f"""
WITH passed AS (
  UPDATE {{outbox_deliveries}} AS delivery
  SET status = CASE WHEN {is_ahead("delivery")} AND EXISTS (
        SELECT FROM {{outbox_log}} AS event JOIN {{outbox_subscriptions}} AS subscription ON name = delivery.handler
        WHERE event.position = delivery.position AND {is_due("subscription", "event")}
      ) THEN 'waiting' ELSE 'skipped' END,
      available_at = {NOW}, alone = false, lease_relay = NULL, lease_epoch = NULL, updated_at = {NOW}
  FROM unnest(:event_ids::uuid[], :handlers::text[]) AS wanted (event_id, handler)
  WHERE delivery.event_id = wanted.event_id AND delivery.handler = wanted.handler
    AND (delivery.status IN ('waiting', 'dead') OR (delivery.status = 'leased' AND NOT EXISTS (
      SELECT FROM {{outbox_relays}} AS relay
      WHERE relay.id = delivery.lease_relay AND relay.epoch = delivery.lease_epoch AND relay.expires_at > {NOW})))
  RETURNING delivery.event_id, delivery.handler
), noted AS (
  INSERT INTO {{outbox_receipts}} (event_id, handler, outcome) SELECT event_id, handler, 'skipped' FROM passed
  ON CONFLICT DO NOTHING
)
SELECT event_id, handler FROM passed
""")  # noqa: S608 - the rules are ours

# As what a delivery is written that an operator asks for.
_ASKED_FOR = f"""
INSERT INTO {{outbox_deliveries}} AS present (event_id, position, handler, order_key, available_at)
  SELECT event_id, position, name, coalesce(
           CASE WHEN ordered AND not_before IS NULL AND length(aggregate_type) <= {NAME_CHARACTERS_MAX}
             THEN aggregate_type || ':' || aggregate_id END, event_id::text), {FROM_NOW_ON}
  FROM due ORDER BY position
"""  # noqa: S608 - the rule is ours

_IS_PASSED = f"""(
  SELECT {is_passed("event", "cursor")} FROM {{outbox_cursor_places}} AS cursor WHERE {OF_CURSOR}) IS TRUE"""  # noqa: S608

# Have an event skipped that the subscription is due for and has not come to. A delivery keeps the event's turn: whoever
# reads the event leaves it to that, and by the receipt whoever takes that skips it.
SKIP_AHEAD = Statement(f"""
WITH due AS MATERIALIZED (
  SELECT event.*, aggregate_type, not_before, name, ordered
  FROM unnest(:event_ids::uuid[], :handlers::text[]) AS wanted (event_id, handler)
  JOIN {{outbox_log}} AS event USING (event_id) JOIN {{outbox_events}} AS whole USING (event_id)
  JOIN {{outbox_subscriptions}} AS subscription ON name = handler
  WHERE {is_due("subscription", "event")} AND NOT {_IS_PASSED}
), written AS ({_ASKED_FOR}
  ON CONFLICT (event_id, handler) DO UPDATE SET status = 'waiting', attempts = 0, updated_at = {NOW}
  WHERE present.settled
  RETURNING event_id, handler
), noted AS (
  INSERT INTO {{outbox_receipts}} (event_id, handler, outcome) SELECT event_id, handler, 'skipped' FROM written
  ON CONFLICT DO NOTHING
)
SELECT event_id, handler FROM written
""")  # noqa: S608 - the rules are ours

# The highest position there is.
HIGHEST = Statement("SELECT coalesce(max(position), 0) AS position FROM {outbox_log}")

# Wait for whoever has its cursors in hand: what is seen of them from then on holds.
HOLD_CURSORS = Statement("SELECT FROM {outbox_cursors} WHERE subscription = :name ORDER BY shard FOR UPDATE")

# Have a subscription's cursors go back, so that the next event is the one at this position. Those that stand there, or
# before, stay, unless a relay has them: it may have handled more than is written, and is to go back over that as well.
REWIND = Statement("""
UPDATE {outbox_cursors} AS cursor SET rewind_to = least(cursor.rewind_to, :position::bigint - 1)
FROM {outbox_cursor_places} AS place
WHERE cursor.subscription = :name AND place.subscription = cursor.subscription AND place.shard = cursor.shard
  AND (place.position >= :position OR cursor.lease_relay IS NOT NULL)
RETURNING place.position >= :position AS goes_back
""")

# Forget the effects of a window of events, so that they happen again. The answer says where the window ends.
FORGET_EFFECTS = Statement(f"""
WITH seen AS MATERIALIZED (
  SELECT * FROM {{outbox_log}} WHERE position >= :position AND position <= :last ORDER BY position LIMIT :events_max
), forgotten AS (
  DELETE FROM {{outbox_receipts}} AS receipt
  USING seen AS event, {{outbox_subscriptions}} AS subscription
  WHERE name = :name AND {is_due("subscription", "event")}
    AND receipt.event_id = event.event_id AND receipt.handler IN (name, renamed_from) AND receipt.outcome = 'done'
  RETURNING receipt.event_id
)
SELECT (SELECT count(DISTINCT event_id) FROM forgotten) AS effects, (SELECT max(position) FROM seen) AS last
""")  # noqa: S608 - the rules are ours

# The events of a subscription that are asked for by hand, and whether it has passed them: one event, or an aggregate's.
ASKED_FOR = Statement(f"""
SELECT event.position, {_IS_PASSED} AS is_passed
FROM (
  SELECT event_id FROM {{outbox_events}} WHERE event_id = :event_id::uuid
  UNION ALL
  SELECT event.event_id FROM {OF_AGGREGATE}
) AS whole
CROSS JOIN LATERAL (SELECT * FROM {{outbox_log}} AS entry WHERE entry.event_id = whole.event_id OFFSET 0) AS event
JOIN {{outbox_subscriptions}} AS subscription ON name = :name
WHERE {is_due("subscription", "event")}
ORDER BY event.position
""")  # noqa: S608 - the rules are ours

# Make passed events due by hand: those that never had an effect or a delivery, and with `again` those that are done.
REPLAY = Statement(f"""
WITH due AS MATERIALIZED (
  SELECT event.*, aggregate_type, not_before, name, ordered
  FROM {{outbox_log}} AS event JOIN {{outbox_events}} AS whole USING (event_id)
  JOIN {{outbox_subscriptions}} AS subscription ON name = :name
  LEFT JOIN {{outbox_deliveries}} AS delivery ON delivery.event_id = event.event_id AND delivery.handler = name
  LEFT JOIN {{outbox_receipts}} AS receipt ON receipt.event_id = event.event_id AND receipt.handler = name
  WHERE event.position = ANY (:positions::bigint[])
    AND ((delivery.event_id IS NULL AND receipt.event_id IS NULL)
      OR (:again AND coalesce(delivery.status, 'done') = 'done' AND coalesce(receipt.outcome, 'done') = 'done'))
), allowed_again AS (
  DELETE FROM {{outbox_receipts}} AS receipt USING due
  WHERE :again AND receipt.event_id = due.event_id AND {is_of(":name")}
), written AS ({_ASKED_FOR}
  ON CONFLICT (event_id, handler) DO UPDATE
  SET status = 'waiting', attempts = 0, takeovers = 0, alone = false, error_message = NULL,
      available_at = excluded.available_at, updated_at = excluded.available_at
  WHERE present.status = 'done'
  RETURNING event_id
)
SELECT event_id FROM written
""")  # noqa: S608 - the rules are ours

# One subscription, with the live relays that carry it.
SUBSCRIPTION = Statement(f"""
SELECT name, kind, patterns, source, ordered, since, paused_at, retired_at, ARRAY(
  SELECT host || ', process ' || process_id FROM {{outbox_relays}}
  WHERE abilities ? subscription.name AND expires_at > {NOW}
  ORDER BY started_at) AS carried_by
FROM {{outbox_subscriptions}} AS subscription WHERE name = :name
""")  # noqa: S608 - the rule is ours

# The names there are, for whoever mistyped one.
SUBSCRIPTION_NAMES = Statement("SELECT name FROM {outbox_subscriptions} ORDER BY name")

# Hold a subscription: it stands where it is, and its deliveries wait.
PAUSE = Statement(f"""
UPDATE {{outbox_subscriptions}} SET paused_at = {NOW}, revision = revision + 1
WHERE name = :name AND paused_at IS NULL AND retired_at IS NULL RETURNING name
""")  # noqa: S608 - the rule is ours

# Let it go on.
RESUME = Statement("""
UPDATE {outbox_subscriptions} SET paused_at = NULL, revision = revision + 1
WHERE name = :name AND paused_at IS NOT NULL RETURNING name
""")

# Hold a subscription against relays that start: they say what they carry once they are seen to live.
HOLD_SUBSCRIPTION = Statement("SELECT FROM {outbox_subscriptions} WHERE name = :name FOR UPDATE")

# Make a subscription due by one of its patterns no more.
RETIRE_PATTERN = Statement("""
UPDATE {outbox_subscriptions} SET patterns = array_remove(patterns, :pattern), revision = revision + 1
WHERE name = :name AND :pattern = ANY (patterns)
RETURNING name
""")

# Make a subscription due for nothing more, unless a live relay carries it.
RETIRE_UNCARRIED = Statement(f"""
UPDATE {{outbox_subscriptions}} AS subscription SET retired_at = {NOW}, revision = revision + 1
WHERE name = :name AND retired_at IS NULL AND NOT EXISTS (
  SELECT FROM {{outbox_relays}} WHERE abilities ? subscription.name AND expires_at > {NOW})
RETURNING name
""")  # noqa: S608 - the rule is ours
