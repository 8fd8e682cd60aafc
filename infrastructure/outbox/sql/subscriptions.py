"""Subscriptions: who is due for which events (R2)."""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import NOW
from outbox_kernel.infrastructure.outbox.sql.named import Statement

# Say what this relay carries. Patterns only grow here: another version of the code may be running that has
# more, and an operator ends one. A name that was retired is due again, with what it comes with alone. The source of one
# that is due stays: behind the same place, events of another queue would be another handler's.
# Whether it is bounded is said by who started last, and all relays share it out by that; so is the name that it had
# before, by which whoever lets an effect happen again finds all receipts of it. Patterns come as JSON arrays.
SUBSCRIBE = Statement(f"""
INSERT INTO {{outbox_subscriptions}} AS present (name, kind, patterns, ordered, source, bounded, renamed_from)
SELECT name, kind, ARRAY(SELECT jsonb_array_elements_text(patterns::jsonb) ORDER BY 1), ordered, source, bounded, former
FROM unnest(:names::text[], :kinds::text[], :patterns::text[], :ordered::bool[], :sources::text[], :bounded::bool[],
            :former::text[])
  AS carried (name, kind, patterns, ordered, source, bounded, former) ORDER BY name
ON CONFLICT (name) DO UPDATE
SET kind = excluded.kind, ordered = excluded.ordered, bounded = excluded.bounded,
    renamed_from = excluded.renamed_from,
    patterns = CASE WHEN present.retired_at IS NOT NULL THEN excluded.patterns
                    ELSE ARRAY(SELECT DISTINCT unnest(present.patterns || excluded.patterns) ORDER BY 1) END,
    source = CASE WHEN present.retired_at IS NOT NULL THEN excluded.source ELSE present.source END,
    since = CASE WHEN present.retired_at IS NULL THEN present.since ELSE {NOW} END,
    retired_at = NULL,
    revision = present.revision + 1
WHERE (present.retired_at IS NULL OR :is_start::bool) AND (
    NOT excluded.patterns <@ present.patterns OR present.retired_at IS NOT NULL
    OR (present.kind, present.ordered, present.bounded, present.renamed_from)
      IS DISTINCT FROM (excluded.kind, excluded.ordered, excluded.bounded, excluded.renamed_from))
""")  # noqa: S608 - the rule is ours

# Move what a handler had under its former name, except what runs there now: its relay is to settle it. This reads
# all deliveries, so it has its reason: a start, or relays of older code at work.
RENAME_DELIVERIES = Statement("""
UPDATE {outbox_deliveries} AS delivery SET handler = renamed.name
FROM unnest(:names::text[], :former::text[]) AS renamed (name, former)
WHERE handler = renamed.former AND status <> 'leased' AND NOT EXISTS (
  SELECT FROM {outbox_deliveries} AS other WHERE other.event_id = delivery.event_id AND other.handler = renamed.name)
""")

# Say under the new name what a receipt says of a delivery, that it is skipped or half done: the turn of all receipts
# comes later. After the deliveries have moved, since an operator whom that waited for may have written one.
RENAME_WHAT_IS_SAID = Statement("""
INSERT INTO {outbox_receipts} (event_id, handler, outcome, created_at)
SELECT delivery.event_id, delivery.handler, said.outcome, said.created_at
FROM unnest(:names::text[], :former::text[]) AS renamed (name, former)
JOIN {outbox_deliveries} AS delivery ON delivery.handler = renamed.name AND delivery.status <> 'done'
CROSS JOIN LATERAL (
  SELECT outcome, created_at FROM {outbox_receipts} AS receipt
  WHERE receipt.event_id = delivery.event_id AND receipt.handler = renamed.former LIMIT 1) AS said
ON CONFLICT DO NOTHING
""")

# Drop what waits under the former name for an event that the new one has as well: two relays, of old and of new
# code, have each written theirs.
DROP_FORMER_DELIVERIES = Statement("""
DELETE FROM {outbox_deliveries} AS delivery USING unnest(:names::text[], :former::text[]) AS renamed (name, former)
WHERE handler = renamed.former AND status IN ('waiting', 'dead') AND EXISTS (
  SELECT FROM {outbox_deliveries} AS other WHERE other.event_id = delivery.event_id AND other.handler = renamed.name)
RETURNING (SELECT position FROM {outbox_events} AS event WHERE event.event_id = delivery.event_id) AS position
""")

# Move the receipts of one window, so that it costs what it looks at and not what there is: until they are moved,
# those under the former name hold all the same, since a receipt is written under both. Those beside one under the
# new name are dropped once no relay is left that could have needed them: a replay takes back those of the new name
# only. The answer is where the next window begins.
RENAME_RECEIPTS = Statement("""
WITH renamed AS MATERIALIZED (
  SELECT name, former FROM unnest(:names::text[], :former::text[]) AS renamed (name, former)
), edge AS MATERIALIZED (
  SELECT event_id FROM {outbox_receipts} WHERE event_id > :after ORDER BY event_id, handler OFFSET :rows_max - 1 LIMIT 1
), found AS MATERIALIZED (
  SELECT event_id, former, name, EXISTS (
    SELECT FROM {outbox_receipts} AS other WHERE other.event_id = receipt.event_id AND other.handler = name) AS twice
  FROM {outbox_receipts} AS receipt JOIN renamed ON handler = former
  WHERE event_id > :after
    AND event_id <= coalesce((SELECT event_id FROM edge), 'ffffffff-ffff-ffff-ffff-ffffffffffff')
), moved AS (
  UPDATE {outbox_receipts} AS receipt SET handler = name FROM found
  WHERE receipt.event_id = found.event_id AND receipt.handler = former AND NOT twice
), dropped AS (
  DELETE FROM {outbox_receipts} AS receipt USING found
  WHERE receipt.event_id = found.event_id AND receipt.handler = former AND twice
    AND NOT EXISTS (SELECT FROM {outbox_relays} WHERE abilities ? former)
)
SELECT (SELECT event_id FROM edge) AS last
""")

# Ask whether relays of older code are at work, or were, since the names were moved.
FORMER_AT_WORK = Statement("""
SELECT EXISTS (SELECT FROM {outbox_relays} WHERE abilities ?| :former::text[])
    OR EXISTS (SELECT FROM {outbox_subscriptions} WHERE name = ANY (:former::text[]) AND retired_at IS NULL) AS found
""")

# The former name is due no longer; what was held under it is held under the new one.
RETIRE_FORMER = Statement(f"""
WITH renamed AS MATERIALIZED (
  SELECT pair.name, former.name AS former, paused_at
  FROM unnest(:names::text[], :former::text[]) AS pair (name, former)
  JOIN {{outbox_subscriptions}} AS former ON former.name = pair.former
  WHERE retired_at IS NULL
), held AS (
  UPDATE {{outbox_subscriptions}} AS present SET paused_at = renamed.paused_at, revision = revision + 1
  FROM renamed WHERE present.name = renamed.name AND renamed.paused_at IS NOT NULL AND present.paused_at IS NULL
)
UPDATE {{outbox_subscriptions}} AS present SET retired_at = {NOW}, paused_at = NULL, revision = revision + 1
FROM renamed WHERE present.name = renamed.former
""")  # noqa: S608 - the rule is ours

# All that are due for something, with the revision that tells of any change.
SUBSCRIPTIONS = Statement("""
SELECT name, kind, patterns, ordered, source, paused_at IS NOT NULL AS paused, retired_at IS NOT NULL AS retired,
       sum(revision) OVER ()::bigint AS revision
FROM {outbox_subscriptions} ORDER BY name
""")
