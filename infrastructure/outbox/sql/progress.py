"""Writing down the places behind what is done (R1, R2b); `reading` is how they are read on from."""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import IS_HALF_DONE, IS_SKIPPED, LEASE, NOW
from outbox_kernel.infrastructure.outbox.sql.named import Statement

# As one text: the driver looks at an array five times before it writes it, and there would be eight. What is sent
# again, since its answer was lost, is there already.
_MOVE = """
INSERT INTO {outbox_progress} (reader, number, position, server, snapshot, late_position, late_snapshot, events,
                               recorded_at)
SELECT reader, number, position, server, snapshot::pg_snapshot, late_position, late_snapshot::pg_snapshot, events, <now>
FROM json_to_recordset(:moved::json) AS moved (
  reader uuid, number bigint, position bigint, server int, snapshot text, late_position bigint, late_snapshot text,
  events bigint)
WHERE EXISTS (SELECT FROM lease)
ON CONFLICT (reader, number) DO NOTHING
""".replace("<now>", NOW)

# Write down where readers stand. It returns nothing where the lease does not hold.
MOVE = Statement(f"WITH {LEASE}, moved AS ({_MOVE}) SELECT true AS held FROM lease")  # noqa: S608 - it is ours

# The same, with the deliveries of those who did not succeed with an event that is passed now, unless it is sent again:
# another may have settled them meanwhile. A row that is there
# already is settled, and the event was gone back to; or it is not, and keeps what it has. What an operator has skipped
# meanwhile stays so, and so does what is half done.
LEAVE_AND_MOVE = Statement(
    f"""
WITH {LEASE}, outcome AS MATERIALIZED (
  SELECT * FROM unnest(
    :event_ids::uuid[], :places::bigint[], :handlers::text[], :order_keys::text[], :states::text[], :attempts::int[],
    :takeovers::int[], :on_dead::text[], :delays::float8[], :not_before::timestamptz[], :errors::text[]
  ) AS outcome (event_id, position, handler, order_key, status, attempts, takeovers, on_dead, delay_seconds, not_before,
                error_message)
  WHERE EXISTS (SELECT FROM lease) AND NOT EXISTS (
    SELECT FROM json_to_recordset(:moved::json) AS moved (reader uuid, number bigint) CROSS JOIN LATERAL (
      SELECT FROM {{outbox_progress}} WHERE reader = moved.reader AND number = moved.number LIMIT 1) AS present)
), written AS (
  INSERT INTO {{outbox_deliveries}} AS present (
    event_id, position, handler, order_key, status, attempts, takeovers, on_dead, available_at, lease_relay,
    lease_epoch, error_message)
  SELECT event_id, position, handler, order_key, status, attempts, takeovers, on_dead,
         greatest(not_before, {NOW} + delay_seconds * interval '1 second'),
         CASE WHEN status = 'leased' THEN :relay::uuid END, CASE WHEN status = 'leased' THEN :epoch::bigint END,
         error_message
  FROM outcome
  ON CONFLICT (event_id, handler) DO UPDATE
  SET status = excluded.status, attempts = excluded.attempts, takeovers = excluded.takeovers, alone = false,
      on_dead = excluded.on_dead, available_at = excluded.available_at, updated_at = {NOW},
      lease_relay = excluded.lease_relay, lease_epoch = excluded.lease_epoch, error_message = excluded.error_message
  WHERE present.settled AND NOT (present.status = 'skipped' AND {IS_SKIPPED.replace("delivery.", "present.")})
    AND ({IS_HALF_DONE.replace("delivery.", "present.")}) IS NOT TRUE
), passed_over AS (
  INSERT INTO {{outbox_receipts}} (event_id, handler, outcome)
  SELECT event_id, handler, 'skipped' FROM outcome WHERE status = 'dead' AND on_dead = 'continue'
  ON CONFLICT DO NOTHING
)
, moved AS ({_MOVE})
SELECT true AS held FROM lease
"""  # noqa: S608 - the fragments are ours
)
