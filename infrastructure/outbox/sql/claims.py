"""Claiming: what a relay takes, and what it must leave so that order holds (R3, R4, R7b, R9)."""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import MOMENTS, like

# Take pending events, each with all earlier open ones of its aggregate being taken too or in our hands already.
# 1 relay, 2 epoch, 3 scan from, 4 lowest position that may be open, 5 events at most, 6 now, 7 bytes at most,
# 8 names under which deliveries may keep an event from being handled here at once, 9 position below which nothing can
# become open any more.
#
# - The lease is locked, so that nobody ends it while rows get it.
# - `earlier` is read from the statement's snapshot: what another relay took meanwhile was open in it, so it
#   blocks; what another let go of blocks once more than needed, until the next claim.
# - What committed long after it took its position may stand below 4. `late` finds it by the last number
#   before the lowest candidate's; emitted events have none, so with one of these among the candidates `earlier` goes
#   back to 9.
# - What is handled from some moment on is of no aggregate here: it waits for nobody, and nobody waits for it.
# - `behind` tells in the usual case that nobody has anything unsettled. Where a long snapshot keeps what is settled
#   from being cleaned up, to find that out is dearer than to ask for each aggregate.
# - What a limit is set to is a probe of the index. Without one the server, who knows of nothing unsettled, may read
#   the whole index for each row, and with it all that is settled and not cleaned up.
# - What is unnested is selected first: of an array that it knows the planner counts the elements, prefers a plan for
#   just these, and plans each claim anew, which takes twice as long as to run it.
# - A payload that is stored compressed counts as many times larger, as lists of rows that are all alike are: to
#   measure it, each candidate would have to be read.
# - A claim that a crash of the server undoes was none: nothing waits for its way to the disk. Marks do wait.
# - The last row is the scan's own report: without it, a claim of nothing could not say why.
CLAIM_EVENTS = """
WITH lease AS (
  SELECT set_config('synchronous_commit', 'off', true) FROM {outbox_relays}
  WHERE id = $1 AND epoch = $2 AND expires_at > coalesce($6::timestamptz, clock_timestamp()) FOR SHARE
), candidate AS MATERIALIZED (
  SELECT position, aggregate_type, CASE WHEN not_before IS NULL THEN aggregate_id END AS aggregate_id,
         CASE WHEN not_before IS NULL THEN aggregate_version END AS aggregate_version,
         pg_column_size(payload) * CASE WHEN pg_column_compression(payload) IS NULL THEN 1 ELSE 16 END AS bytes
  FROM {outbox_events}
  WHERE EXISTS (SELECT FROM lease) AND status = 'pending' AND position >= $3
    AND available_at <= coalesce($6::timestamptz, clock_timestamp())
  ORDER BY position LIMIT $5 FOR UPDATE SKIP LOCKED
), fitting AS (
  SELECT * FROM (SELECT *, sum(bytes) OVER (ORDER BY position) - bytes AS bytes_before FROM candidate) AS measured
  WHERE bytes_before < $7
), earlier AS MATERIALIZED (
  SELECT position, aggregate_type, CASE WHEN not_before IS NULL THEN aggregate_id END AS aggregate_id,
         status = 'leased' AND lease_relay = $1 AND lease_epoch = $2 AS ours
  FROM {outbox_events}
  WHERE status IN ('pending', 'leased')
    AND position >= (SELECT CASE WHEN EXISTS (
      SELECT FROM candidate WHERE aggregate_id IS NOT NULL AND aggregate_version IS NULL) THEN $9::bigint ELSE $4 END)
    AND position < (SELECT max(position) FROM candidate)
    AND position NOT IN (SELECT position FROM candidate)
), head AS MATERIALIZED (
  SELECT aggregate_type, aggregate_id, min(position) AS position, min(aggregate_version) AS aggregate_version
  FROM candidate WHERE aggregate_version > 1 GROUP BY aggregate_type, aggregate_id
), late AS MATERIALIZED (
  SELECT aggregate_type, aggregate_id, position FROM head
  WHERE (
    SELECT before.position < $4 AND status IN ('pending', 'leased')
      AND (lease_relay, lease_epoch) IS DISTINCT FROM ($1, $2)
    FROM {outbox_events} AS before
    WHERE before.aggregate_type = head.aggregate_type AND before.aggregate_id = head.aggregate_id
      AND before.aggregate_version < head.aggregate_version AND before.not_before IS NULL
    ORDER BY before.aggregate_version DESC LIMIT 1)
), blocked AS MATERIALIZED (
  SELECT aggregate_type, aggregate_id, min(position) AS position FROM (
    SELECT aggregate_type, aggregate_id, position - 1 AS position FROM late
    UNION ALL
    SELECT aggregate_type, aggregate_id, position FROM earlier WHERE NOT ours AND aggregate_id IS NOT NULL
  ) AS open GROUP BY aggregate_type, aggregate_id
), claimed AS (
  UPDATE {outbox_events}
  SET status = 'leased', lease_relay = $1, lease_epoch = $2,
      updated_at = coalesce($6::timestamptz, clock_timestamp())
  WHERE position = ANY (ARRAY(
    SELECT position FROM fitting WHERE NOT EXISTS (
      SELECT FROM blocked WHERE blocked.aggregate_type = fitting.aggregate_type
        AND blocked.aggregate_id = fitting.aggregate_id AND blocked.position < fitting.position)))
  RETURNING position, event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
            payload::text, headers::text, occurred_at, created_at, takeovers, aggregate_key, not_before
), behind AS MATERIALIZED (
  SELECT name FROM unnest((SELECT $8::text[])) AS names (name)
  WHERE pg_stat_get_dead_tuples('{outbox_deliveries}'::regclass) > 5000
     OR (SELECT true FROM {outbox_deliveries} WHERE NOT settled AND handler = name LIMIT 1)
)
SELECT claimed.*,
       CASE WHEN aggregate_id IS NOT NULL AND EXISTS (SELECT FROM behind) THEN (
         SELECT array_agg(name) FROM behind WHERE (
           SELECT true FROM {outbox_deliveries} AS delivery
           WHERE NOT settled AND handler = name
             AND order_key = claimed.aggregate_type || ':' || claimed.aggregate_id
             AND delivery.position < claimed.position LIMIT 1)
       ) END AS unsettled,
       NULL::text AS report
FROM claimed
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, json_build_object(
  'held', EXISTS (SELECT FROM lease),
  'more', (SELECT count(*) FROM candidate) = $5 OR (SELECT count(*) FROM candidate) > (SELECT count(*) FROM fitting),
  'last', (SELECT max(position) FROM fitting),
  'lowest', least((SELECT min(position) FROM candidate), (SELECT min(position) FROM earlier)),
  'revision', (SELECT coalesce(sum(revision), 0) FROM {outbox_subscriptions}))::text
"""

# Find the lowest open position, below which no scan needs to begin, and its age; the highest of all that is there; the
# oldest transaction that may yet write, and the next. 1 now.
LOWEST_OPEN = """
SELECT lowest.position AS lowest, lowest.age_seconds::float8 AS age_seconds,
       coalesce((SELECT max(position) FROM {outbox_events}), 0) AS last,
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest_transaction,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_transaction
FROM (VALUES (true)) AS always LEFT JOIN LATERAL (
  SELECT position, extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - created_at) AS age_seconds
  FROM {outbox_events} WHERE status IN ('pending', 'leased') ORDER BY position LIMIT 1) AS lowest ON true
"""

# Take deliveries whose turn it is: per order_key and handler the lowest unsettled one, if it is waiting and
# its time has come, with those that follow it. The scan hops from head to head, so that a thousand parked
# behind a dead one cost a single probe, and what others are to run costs nothing. Of each handler it hops to one
# head after the other's, so that none comes before the rest.
# 1 relay, 2 epoch, 3-5 what we can run (handler, event type, newest version), 6-7 those handlers, and the order_key
# from which each hops on, 8 heads to look at, 9 heads to take, 10 deliveries per head, 11 suspects only, 12 now,
# 13 with 3-5: a former name of the handler, under which a relay of older code may hold what comes before, 14 with
# 3-5: what its death means, since a run that kills the process never comes to say it, 15 bytes at most, 16 handlers
# that run code, which may kill the process: of theirs, what was taken over twice is a suspect. 17-18 turns to look at,
# whatever the scan hops over (handler, order_key): their heads cost a probe each, however much is not cleaned up.
_CLAIM_DELIVERIES = """
WITH RECURSIVE lease AS (
  SELECT FROM {outbox_relays}
  WHERE id = $1 AND epoch = $2 AND expires_at > coalesce($12::timestamptz, clock_timestamp()) FOR SHARE
), hop AS (
  SELECT first.* FROM unnest((SELECT $6::text[]), (SELECT $7::text[])) AS runnable (handler, after) CROSS JOIN LATERAL (
    SELECT order_key, handler, position, event_id, status, available_at, takeovers FROM {outbox_deliveries}
    WHERE NOT settled AND handler = runnable.handler AND order_key > runnable.after AND EXISTS (SELECT FROM lease)
    ORDER BY order_key, position LIMIT 1) AS first
  UNION ALL
  SELECT next.* FROM hop CROSS JOIN LATERAL (
    SELECT order_key, handler, position, event_id, status, available_at, takeovers FROM {outbox_deliveries}
    WHERE NOT settled AND handler = hop.handler AND order_key > hop.order_key
    ORDER BY order_key, position LIMIT 1) AS next
), known AS (
  SELECT first.* FROM unnest((SELECT $17::text[]), (SELECT $18::text[])) AS turn (handler, order_key)
  CROSS JOIN LATERAL (
    SELECT order_key, handler, position, event_id, status, available_at, takeovers FROM {outbox_deliveries}
    WHERE NOT settled AND handler = turn.handler AND order_key = turn.order_key AND EXISTS (SELECT FROM lease)
    ORDER BY order_key, position LIMIT 1) AS first
), head AS MATERIALIZED (
  (SELECT * FROM hop LIMIT $8) UNION ALL SELECT * FROM known
), ability AS MATERIALIZED (
  SELECT *, <like> AS pattern
  FROM unnest((SELECT $3::text[]), (SELECT $4::text[]), (SELECT $5::int[]), (SELECT $13::text[]),
              (SELECT $14::text[])) AS ability (handler, event_type, event_version, former, on_dead)
), ours AS MATERIALIZED (
  SELECT head.*, head.takeovers >= 2 AND head.handler = ANY ($16::text[]) AS suspect
  FROM head JOIN {outbox_events} AS event USING (event_id)
  WHERE head.status = 'waiting' AND NOT EXISTS (
    -- Under a retired name nothing may run: what comes before it may have the handler's next name already.
    SELECT FROM {outbox_subscriptions}
    WHERE name = head.handler AND (paused_at IS NOT NULL OR retired_at IS NOT NULL))
  AND EXISTS (
    SELECT FROM ability WHERE ability.handler = head.handler AND event.event_type LIKE ability.pattern
      AND event.event_version <= ability.event_version
      AND (
        SELECT true FROM {outbox_deliveries} AS before WHERE NOT before.settled
          AND before.order_key = head.order_key AND before.handler = ability.former
          AND before.position < head.position LIMIT 1) IS NULL)
), taken AS MATERIALIZED (
  SELECT locked.* FROM (
    SELECT event_id, handler FROM ours
    WHERE available_at <= coalesce($12::timestamptz, clock_timestamp()) AND suspect = $11 LIMIT $9) AS chosen
  CROSS JOIN LATERAL (
    SELECT order_key, handler, position FROM {outbox_deliveries}
    WHERE event_id = chosen.event_id AND handler = chosen.handler
      -- Once more, of the row as it is when it is locked: another relay may have failed with it meanwhile.
      AND status = 'waiting' AND available_at <= coalesce($12::timestamptz, clock_timestamp())
    LIMIT 1 FOR UPDATE SKIP LOCKED) AS locked
), follower AS MATERIALIZED (
  SELECT next.event_id, next.handler, next.position, bool_and(next.may_run) OVER (
           PARTITION BY next.order_key, next.handler ORDER BY next.position) AS may_run
  FROM taken CROSS JOIN LATERAL (
    SELECT delivery.*, delivery.position = taken.position OR (
             delivery.status = 'waiting' AND NOT (takeovers >= 2 AND delivery.handler = ANY ($16::text[]))
             AND delivery.available_at <= coalesce($12::timestamptz, clock_timestamp())
             AND EXISTS (
               SELECT FROM ability JOIN {outbox_events} AS event ON event.event_id = delivery.event_id
               WHERE ability.handler = delivery.handler AND event.event_type LIKE ability.pattern
                 AND event.event_version <= ability.event_version
                 AND (
                   SELECT true FROM {outbox_deliveries} AS before WHERE NOT before.settled
                     AND before.order_key = delivery.order_key AND before.handler = ability.former
                     AND before.position < delivery.position LIMIT 1) IS NULL)) AS may_run
    FROM {outbox_deliveries} AS delivery
    WHERE NOT settled AND delivery.order_key = taken.order_key AND delivery.handler = taken.handler
      AND delivery.position >= taken.position
    ORDER BY delivery.position LIMIT $10) AS next
), fitting AS (
  -- By position over all turns, so that what is left is the end of each.
  SELECT event_id, handler FROM (
    SELECT *, sum(bytes) OVER (ORDER BY position, handler) - bytes AS bytes_before FROM (
      SELECT follower.event_id, follower.handler, follower.position,
             pg_column_size(payload) * CASE WHEN pg_column_compression(payload) IS NULL THEN 1 ELSE 16 END AS bytes
      FROM follower JOIN {outbox_events} AS event USING (event_id) WHERE follower.may_run) AS sized) AS measured
  WHERE bytes_before < $15
), claimed AS (
  UPDATE {outbox_deliveries} AS delivery
  SET status = 'leased', lease_relay = $1, lease_epoch = $2, alone = $11,
      on_dead = (SELECT on_dead FROM ability WHERE ability.handler = delivery.handler LIMIT 1),
      updated_at = coalesce($12::timestamptz, clock_timestamp())
  FROM fitting
  WHERE delivery.event_id = fitting.event_id AND delivery.handler = fitting.handler
    AND delivery.status = 'waiting'
  RETURNING delivery.event_id, delivery.handler, delivery.order_key, delivery.position, delivery.attempts,
            delivery.takeovers
)
SELECT event.position, event.event_id, event_type, event_version, aggregate_type, aggregate_id,
       aggregate_version, payload::text, headers::text, <moments>, claimed.takeovers,
       aggregate_key, claimed.handler, claimed.order_key, claimed.position AS place, claimed.attempts,
       NULL::text AS report
FROM claimed JOIN {outbox_events} AS event USING (event_id)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       json_build_object(
  'held', EXISTS (SELECT FROM lease),
  'seen', (SELECT count(*) FROM head),
  'more', (SELECT count(*) FROM follower WHERE may_run) > (SELECT count(*) FROM fitting),
  'last', (
    SELECT coalesce(json_object_agg(handler, last), '{{}}')
    FROM (SELECT handler, max(order_key) AS last FROM head GROUP BY handler) AS ends),
  'suspects', EXISTS (
    SELECT FROM ours WHERE suspect AND available_at <= coalesce($12::timestamptz, clock_timestamp())),
  'next_in_seconds', (
    SELECT extract(epoch FROM min(available_at) - coalesce($12::timestamptz, clock_timestamp()))
    FROM ours WHERE available_at > coalesce($12::timestamptz, clock_timestamp())))::text
"""
_CLAIM_DELIVERIES = _CLAIM_DELIVERIES.replace("<like>", like("ability.event_type"))
CLAIM_DELIVERIES = _CLAIM_DELIVERIES.replace("<moments>", "occurred_at, event.created_at, not_before")

# The same, where what cannot be read is told by a column that is null.
TAKE_DELIVERIES = _CLAIM_DELIVERIES.replace("<moments>", MOMENTS)
