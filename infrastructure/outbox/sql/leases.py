"""Leases: one row per live relay; its rows are another's as soon as that row is gone (R3, R7b)."""

from __future__ import annotations

# Begin to live, or live again after the lease was lost.
# 1 relay, 2 epoch, 3 lease seconds, 4 process id, 5 host, 6 code version, 7 abilities, 8 patterns, 9 whether it takes
# events, 10 now.
REGISTER = """
INSERT INTO {outbox_relays} (id, epoch, expires_at, process_id, host, code_version, abilities, patterns, takes_events)
VALUES ($1, $2, coalesce($10::timestamptz, clock_timestamp()) + $3 * interval '1 second', $4, $5, $6, $7::text::jsonb,
        $8::text::jsonb, $9)
ON CONFLICT (id) DO UPDATE
SET epoch = excluded.epoch, expires_at = excluded.expires_at, abilities = excluded.abilities,
    patterns = excluded.patterns, takes_events = excluded.takes_events,
    renewed_at = coalesce($10::timestamptz, clock_timestamp())
WHERE outbox_relays.epoch < excluded.epoch
"""

# Live on; a lease that has run out cannot be renewed. 1 relay, 2 epoch, 3 lease seconds, 4 now.
RENEW = """
UPDATE {outbox_relays}
SET renewed_at = coalesce($4::timestamptz, clock_timestamp()),
    expires_at = coalesce($4::timestamptz, clock_timestamp()) + $3 * interval '1 second'
WHERE id = $1 AND epoch = $2 AND expires_at > coalesce($4::timestamptz, clock_timestamp())
RETURNING id
"""

# Say which publishers are paused here, each with its reason. 1 relay, 2 epoch, 3 as JSON.
TELL_PAUSES = """
UPDATE {outbox_relays} SET pauses = $3::text::jsonb WHERE id = $1 AND epoch = $2
"""

# Live no longer. 1 relay, 2 epoch.
RESIGN = """
DELETE FROM {outbox_relays} WHERE id = $1 AND epoch = $2
"""

# Give back what was claimed under epochs that are over, by the relay itself: nobody is charged. Only after its
# lease row was deleted or changed, which waits for every claim under way, even one whose answer nobody hears.
# 1 relay, 2 newest epoch that is over, 3 now.
GIVE_BACK_EVENTS = """
UPDATE {outbox_events}
SET status = 'pending', lease_relay = NULL, lease_epoch = NULL,
    updated_at = coalesce($3::timestamptz, clock_timestamp())
WHERE status = 'leased' AND lease_relay = $1 AND lease_epoch <= $2
"""

GIVE_BACK_DELIVERIES = """
UPDATE {outbox_deliveries}
SET status = 'waiting', alone = false, lease_relay = NULL, lease_epoch = NULL,
    updated_at = coalesce($3::timestamptz, clock_timestamp())
WHERE status = 'leased' AND lease_relay = $1 AND lease_epoch <= $2
"""

# End the leases that have run out. The row is locked and looked at again, so that a renewal in time wins. One that
# is locked, as by the claim of a relay that was stopped while it read the answer, waits for the next time alone. 1 now.
EXPIRE = """
DELETE FROM {outbox_relays} WHERE id = ANY (ARRAY(
  SELECT id FROM {outbox_relays} WHERE expires_at <= coalesce($1::timestamptz, clock_timestamp())
  FOR UPDATE SKIP LOCKED))
RETURNING id, epoch, host, process_id
"""

# Ask whether a lease has run out. 1 now.
ANY_EXPIRED = """
SELECT EXISTS (SELECT FROM {outbox_relays} WHERE expires_at <= coalesce($1::timestamptz, clock_timestamp())) AS found
"""

# Make what nobody living holds claimable again. Only from the lease that was seen to be dead: while this waits for
# a row, another sweep may free it, and a relay claim it whose own row is younger than what this statement sees. 1 now.
TAKE_OVER_EVENTS = """
WITH gone AS MATERIALIZED (
  SELECT position, lease_relay, lease_epoch FROM {outbox_events} AS event
  WHERE status = 'leased' AND NOT EXISTS (
    SELECT FROM {outbox_relays} AS relay WHERE relay.id = event.lease_relay AND relay.epoch = event.lease_epoch)
)
UPDATE {outbox_events} AS event
SET status = 'pending', takeovers = takeovers + 1, lease_relay = NULL, lease_epoch = NULL,
    updated_at = coalesce($1::timestamptz, clock_timestamp())
FROM gone
WHERE event.position = gone.position AND event.status = 'leased'
  AND event.lease_relay = gone.lease_relay AND event.lease_epoch = gone.lease_epoch
RETURNING event.position
"""

# The same for deliveries. What ran alone when its relay vanished is charged, and is dead the third time: a
# suspect has two takeovers, and is only ever taken alone. 1 now.
TAKE_OVER_DELIVERIES = """
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
      available_at = coalesce($1::timestamptz, clock_timestamp()),
      updated_at = coalesce($1::timestamptz, clock_timestamp())
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
"""
