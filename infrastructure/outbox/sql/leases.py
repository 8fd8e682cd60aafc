"""Leases: one row per live relay; what it holds is another's as soon as that row is gone (R3)."""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import NOW
from outbox_kernel.infrastructure.outbox.sql.named import Statement

# Begin to live, or live again after the lease was lost.
REGISTER = Statement(
    f"""
INSERT INTO {{outbox_relays}} (id, epoch, expires_at, process_id, host, code_version, abilities, patterns, takes_events)
VALUES (:relay, :epoch, {NOW} + :lease_seconds * interval '1 second', :process_id, :host, :code_version,
        :abilities::text::jsonb, :patterns::text::jsonb, :takes_events)
ON CONFLICT (id) DO UPDATE
SET epoch = excluded.epoch, expires_at = excluded.expires_at, abilities = excluded.abilities,
    patterns = excluded.patterns, takes_events = excluded.takes_events, renewed_at = {NOW}
WHERE outbox_relays.epoch < excluded.epoch
"""  # noqa: S608 - the fragments are ours
)

# What the server's clock shows, in seconds since 2000.
_SHOWN = "extract(epoch FROM clock_timestamp() - timestamptz '2000-01-01 00:00:00+00')::float8 AS shown"
CLOCK = Statement(f"SELECT {_SHOWN}")

# Live on; a lease that has run out cannot be renewed.
RENEW = Statement(
    f"""
UPDATE {{outbox_relays}} SET renewed_at = {NOW}, expires_at = {NOW} + :lease_seconds * interval '1 second'
WHERE id = :relay AND epoch = :epoch AND expires_at > {NOW}
RETURNING {_SHOWN}
"""  # noqa: S608 - the fragments are ours
)

# Say which publishers are paused here, as JSON: each with its reason.
TELL_PAUSES = Statement("""
UPDATE {outbox_relays} SET pauses = :pauses::text::jsonb WHERE id = :relay AND epoch = :epoch
""")

# Live no longer.
RESIGN = Statement("DELETE FROM {outbox_relays} WHERE id = :relay AND epoch <= :epoch")

# End the leases that have run out. The row is locked and looked at again, so that a renewal in time wins. One that
# is locked, as by the claim of a relay that was stopped while it read the answer, waits for the next time alone.
EXPIRE = Statement(
    f"""
DELETE FROM {{outbox_relays}} WHERE id = ANY (ARRAY(
  SELECT id FROM {{outbox_relays}} WHERE expires_at <= {NOW} FOR UPDATE SKIP LOCKED))
RETURNING id, epoch, host, process_id
"""  # noqa: S608 - the fragments are ours
)

# Ask whether a lease has run out.
ANY_EXPIRED = Statement(
    f"SELECT EXISTS (SELECT FROM {{outbox_relays}} WHERE expires_at <= {NOW}) AS found"  # noqa: S608 - ours
)
