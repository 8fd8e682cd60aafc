"""Subject keys: a key for each whom sealed fields are about, encrypted by a master key, until it is destroyed (O6)."""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import NOW
from outbox_kernel.infrastructure.outbox.sql.named import Statement

# Return the living key of each subject, made of what is proposed where there is none, and hold it to the end of the
# transaction: who forgets waits for whoever writes with the key, and who writes after that gets another one. Those that
# are there are looked for first, so that one that was being destroyed is made anew at once. A subject whose key
# somebody has committed while this waited for him is missing from the answer, and is there when asked again.
TAKE_KEYS = Statement("""
WITH made AS (
  INSERT INTO {outbox_subject_keys} (id, subject, master_key, wrapped)
  SELECT id, subject, :master_key, wrapped
  FROM unnest(:subjects::text[], :ids::uuid[], :wrapped::text[]) AS proposed (subject, id, wrapped) ORDER BY subject
  ON CONFLICT (subject) WHERE forgotten_at IS NULL DO NOTHING
  RETURNING subject, id, master_key, wrapped
), kept AS (
  SELECT subject, id, master_key, wrapped FROM {outbox_subject_keys}
  WHERE subject = ANY (:subjects::text[]) AND forgotten_at IS NULL ORDER BY subject FOR KEY SHARE
)
SELECT json_agg(key)::text AS keys FROM (SELECT * FROM kept UNION ALL SELECT * FROM made) AS key
""")

# Read keys by their ids, those that are destroyed as well.
READ_KEYS = Statement("""
SELECT id, subject, master_key, wrapped, forgotten_at FROM {outbox_subject_keys} WHERE id = ANY (:ids::uuid[])
""")

# Tell which of these keys are destroyed by now.
FORGOTTEN_KEYS = Statement("""
SELECT id FROM {outbox_subject_keys} WHERE id = ANY (:ids::uuid[]) AND forgotten_at IS NOT NULL
""")

# Destroy the living key of a subject, once whoever writes with it has ended. What is left tells of it.
FORGET = Statement(
    f"""
UPDATE {{outbox_subject_keys}} SET master_key = NULL, wrapped = NULL, forgotten_at = {NOW}
WHERE id IN (
  SELECT id FROM {{outbox_subject_keys}} WHERE subject = :subject AND forgotten_at IS NULL FOR UPDATE)
RETURNING created_at, forgotten_at
"""  # noqa: S608 - the fragments are ours
)

# When a subject was last forgotten.
FORGOTTEN_SINCE = Statement(
    "SELECT max(forgotten_at) AS forgotten_at FROM {outbox_subject_keys} WHERE subject = :subject"
)

# Count the living keys by the master key that encrypts them, each with one of them.
BY_MASTER_KEY = Statement("""
SELECT counted.master_key, counted.keys, key.id, key.subject, key.wrapped
FROM (SELECT master_key, count(*) AS keys, min(id::text)::uuid AS id FROM {outbox_subject_keys}
      WHERE forgotten_at IS NULL GROUP BY master_key) AS counted
JOIN {outbox_subject_keys} AS key USING (id)
ORDER BY master_key
""")

# Read the next living keys that one of these master keys encrypts, and let nobody change them.
KEYS_TO_REWRAP = Statement("""
SELECT id, subject, master_key, wrapped FROM {outbox_subject_keys}
WHERE forgotten_at IS NULL AND master_key = ANY (:masters::text[]) AND id > :after
ORDER BY id LIMIT :most FOR NO KEY UPDATE
""")

# Write keys encrypted by another master key.
REWRAP = Statement("""
UPDATE {outbox_subject_keys} AS key SET master_key = :master_key, wrapped = given.wrapped
FROM unnest(:ids::uuid[], :wrapped::text[]) AS given (id, wrapped) WHERE key.id = given.id
""")

# Read the events of a type, as a relay has them.
SEALED_EVENTS = Statement("""
SELECT event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_key, aggregate_version,
       payload::text AS payload, not_before
FROM {outbox_events} WHERE event_type = :event_type ORDER BY position
""")
