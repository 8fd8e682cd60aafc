"""Receipts: which handler has had its effect of which event, written in the transaction of that effect (R3, R6)."""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import NOW
from outbox_kernel.infrastructure.outbox.sql.named import Statement

# Write the receipt of a handler's effect, in the transaction of the effect, while the lease holds; none for a
# transaction that has written nothing so far, which the server knows by the number that it gives to those that have.
# One for each event, several of a batch, and for each of its names: a relay of older code, where it has its former
# name, meets it there. A transaction of one snapshot does not see the lease renewed after it began, and is told so.
WRITE_RECEIPT = Statement(
    f"""
WITH effect AS MATERIALIZED (
  SELECT pg_current_xact_id_if_assigned() IS NOT NULL AS written
), lease AS MATERIALIZED (
  SELECT FROM {{outbox_relays}} WHERE id = :relay::uuid AND epoch = :epoch::bigint AND expires_at > {NOW}
), receipt AS (
  INSERT INTO {{outbox_receipts}} (event_id, handler)
  SELECT event_id, name FROM effect, lease, unnest(:event_ids::uuid[]) AS event_id, unnest(:names::text[]) AS name
  WHERE effect.written
  ON CONFLICT DO NOTHING RETURNING handler
)
SELECT CASE WHEN NOT (SELECT written FROM effect) THEN 'no effect'
            WHEN (SELECT count(*) FROM receipt) = cardinality(:event_ids::uuid[]) * cardinality(:names::text[])
              THEN 'written'
            WHEN EXISTS (SELECT FROM lease) THEN 'duplicate'
            WHEN current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
              AND EXISTS (SELECT FROM {{outbox_relays}} WHERE id = :relay::uuid AND epoch = :epoch::bigint)
              THEN 'old snapshot'
            ELSE 'lease lost' END
"""  # noqa: S608 - the fragments are ours
)

# Find the events of a batch that a handler has had its effect of, under whichever of its names.
HANDLED = Statement("""
SELECT event_id FROM {outbox_receipts} WHERE event_id = ANY (:event_ids::uuid[]) AND handler = ANY (:names::text[])
""")

# Ask whether the open transaction has written anything, locked rows included.
HAS_WRITTEN = """
SELECT pg_current_xact_id_if_assigned() IS NOT NULL
"""

# Tell this database from every other one, whatever the address by which it is reached.
DATABASE = """
SELECT system_identifier || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())
FROM pg_control_system()
"""
