"""Receipts: which handler has had its effect of which event, written in the transaction of that effect (R3, R6)."""

from __future__ import annotations

# Write the receipt of a handler's effect, in the transaction of the effect, while the lease holds; none for a
# transaction that has written nothing so far, which the server knows by the number that it gives to those that have.
# One for each of its names: a relay of older code, where it has its former name, meets it there. A transaction of one
# snapshot does not see the lease renewed after that was taken, and is told so.
# 1 event id, 2 names, 3 relay, 4 epoch, 5 now.
WRITE_RECEIPT = """
WITH effect AS MATERIALIZED (
  SELECT pg_current_xact_id_if_assigned() IS NOT NULL AS written
), lease AS MATERIALIZED (
  SELECT FROM {outbox_relays}
  WHERE id = $3::uuid AND epoch = $4::bigint AND expires_at > coalesce($5::timestamptz, clock_timestamp())
), receipt AS (
  INSERT INTO {outbox_receipts} (event_id, handler)
  SELECT $1::uuid, name FROM effect, lease, unnest($2::text[]) AS name WHERE effect.written
  ON CONFLICT DO NOTHING RETURNING handler
)
SELECT CASE WHEN NOT (SELECT written FROM effect) THEN 'no effect'
            WHEN (SELECT count(*) FROM receipt) = cardinality($2::text[]) THEN 'written'
            WHEN EXISTS (SELECT FROM lease) THEN 'duplicate'
            WHEN current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
              AND EXISTS (SELECT FROM {outbox_relays} WHERE id = $3::uuid AND epoch = $4::bigint) THEN 'old snapshot'
            ELSE 'lease lost' END
"""

# Ask whether the open transaction has written anything, locked rows included.
HAS_WRITTEN = """
SELECT pg_current_xact_id_if_assigned() IS NOT NULL
"""

# Tell this database from every other one, whatever the address by which it is reached.
DATABASE = """
SELECT system_identifier || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())
FROM pg_control_system()
"""
