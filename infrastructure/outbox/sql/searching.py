"""Finding events: by what they are called, whose they are, when they were, and what they say (O3).

Nothing but ids and streams has an index, since each would cost every writer. So a search walks the log, the newest
first, a stretch at a time, and each answer says how far it has come. Where an aggregate is named, it walks that one's
stream.
"""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import SOURCES, shown
from outbox_kernel.infrastructure.outbox.sql.named import Statement

_BECAME = """
CROSS JOIN LATERAL (
  SELECT became.status, became.retry_count, became.processed_at, became.error_message
  FROM {outbox_status} AS became WHERE became.event_id = event.event_id LIMIT 1) AS became
"""
_SUMMARY = f"""
event.position, event.event_id, event.event_type, event.event_version, event.aggregate_type, event.aggregate_id,
event.aggregate_key, event.aggregate_version, event.source, became.status, became.retry_count,
{shown("event.occurred_at")} AS occurred_at, event.created_at,
CASE WHEN event.not_before IS NOT NULL THEN {shown("event.not_before")} END AS not_before, became.processed_at,
became.error_message
"""
_ASKED = """
(:pattern::text IS NULL OR looked_at.event_type ~ :pattern)
    AND (:types::text[] IS NULL OR looked_at.aggregate_type = ANY (:types))
    AND (:ids::uuid[] IS NULL OR looked_at.aggregate_id = ANY (:ids))
    AND (:words::text[] IS NULL OR looked_at.payload::text ILIKE ANY (:words))
"""
# What an event has to have, before it is asked what became of it.
_MAY_BE = """
(:status::text IS NULL OR :status IN ('pending', 'delivered')
     OR EXISTS (SELECT FROM {outbox_deliveries} AS delivery WHERE delivery.event_id = looked_at.event_id))
"""

_OF_LOG = """
SELECT * FROM {outbox_events} WHERE position < :before AND position >= :first ORDER BY position DESC LIMIT :look_max
"""
# In an aggregate numbers rise as positions do: from the event where the last stretch has ended, its number leads on.
# What queues have brought is numbered by others, and leads nobody through what was written here.
_OF_PART = """
  (SELECT * FROM {{outbox_events}} WHERE aggregate_type = kind.type AND aggregate_id = named.id AND {0}
     AND aggregate_version < coalesce((
       SELECT aggregate_version FROM {{outbox_events}}
       WHERE position = :before AND aggregate_type = kind.type AND aggregate_id = named.id AND {0}
     ), 9223372036854775807)
     AND position < :before AND position >= :first
   ORDER BY aggregate_version DESC LIMIT :look_max)
  UNION ALL
  (SELECT * FROM (
     SELECT * FROM {{outbox_events}}
     WHERE aggregate_type = kind.type AND aggregate_id = named.id AND aggregate_version IS NULL AND {0}
     LIMIT :emitted_max) AS emitted
   WHERE position < :before AND position >= :first ORDER BY position DESC LIMIT :look_max)
"""
_OF_STREAM = f"""
SELECT event.* FROM unnest(:types::text[]) AS kind (type) CROSS JOIN unnest(:ids::uuid[]) AS named (id)
CROSS JOIN LATERAL ({"UNION ALL".join(map(_OF_PART.format, SOURCES))}) AS event
ORDER BY event.position DESC LIMIT :look_max
"""  # noqa: S608 - ours


def _walk(stretch: str) -> Statement:
    return Statement(f"""
WITH looked_at AS MATERIALIZED ({stretch}), found AS MATERIALIZED (
  SELECT {_SUMMARY}
  FROM (SELECT * FROM looked_at WHERE {_ASKED} AND {_MAY_BE} ORDER BY position DESC OFFSET 0) AS event {_BECAME}
  WHERE :status::text IS NULL OR became.status = :status
  ORDER BY event.position DESC LIMIT :events_max
), extent AS (
  SELECT min(position) AS reached, min(created_at) AS reached_at, count(*) AS looked_at FROM looked_at
)
SELECT extent.*, found.* FROM extent LEFT JOIN found ON true ORDER BY found.position DESC
""")  # noqa: S608 - ours


# Walk a stretch of the log backwards from a position, which is not part of it, but not beyond the first. Each row says
# up to where it was looked; where nothing is found, there is one that says only this.
WALK = _walk(_OF_LOG)
# The same of some aggregates alone, by the index of streams.
WALK_STREAM = _walk(_OF_STREAM)

# Whether one of these aggregates has as many events without a number, which have no order in that index.
_EMITTED = """
  SELECT count(*) AS events FROM (
    SELECT FROM {{outbox_events}}
    WHERE aggregate_type = kind.type AND aggregate_id = named.id AND aggregate_version IS NULL AND {}
    LIMIT :emitted_max) AS few
"""
HAS_MANY_EMITTED = Statement(f"""
SELECT coalesce(bool_or(emitted.events >= :emitted_max), false) AS has_many
FROM unnest(:types::text[]) AS kind (type) CROSS JOIN unnest(:ids::uuid[]) AS named (id)
CROSS JOIN LATERAL ({"UNION ALL".join(map(_EMITTED.format, SOURCES))}) AS emitted
""")  # noqa: S608 - ours

# A page of an aggregate's events, the newest first: those with a number below one by the index of streams, and the
# others, of which so many are looked at, below a position.
_NUMBERS = (":version", ":brought")
_OF_SOURCE = """
  (SELECT * FROM {{outbox_events}}
   WHERE aggregate_type = :type AND aggregate_id = :id AND aggregate_version < {1} AND {0}
   ORDER BY aggregate_version DESC LIMIT :events_max)
  UNION ALL
  (SELECT * FROM (
     SELECT * FROM {{outbox_events}}
     WHERE aggregate_type = :type AND aggregate_id = :id AND aggregate_version IS NULL AND {0}
     LIMIT :look_max) AS emitted
   WHERE position < :position ORDER BY position DESC LIMIT :events_max)
"""
OF_AGGREGATE = Statement(f"""
SELECT {_SUMMARY}, event.payload::text AS payload, event.headers::text AS headers
FROM (
  {"UNION ALL".join(map(_OF_SOURCE.format, SOURCES, _NUMBERS))}
  ORDER BY position DESC LIMIT :events_max
) AS event {_BECAME}
ORDER BY event.position DESC
""")  # noqa: S608 - ours

# Which of these types have an aggregate of one of these ids, with its key as written.
_OF_TYPE = """
  (SELECT aggregate_id, aggregate_key FROM {{outbox_events}} AS event
   WHERE event.aggregate_type = kind.type AND event.aggregate_id = named.id AND {} LIMIT 1)
"""
TYPES_OF_AGGREGATE = Statement(f"""
SELECT kind.type, event.aggregate_id, event.aggregate_key
FROM unnest(:types::text[]) AS kind (type) CROSS JOIN unnest(:ids::uuid[]) AS named (id)
CROSS JOIN LATERAL ({"UNION ALL".join(map(_OF_TYPE.format, SOURCES))} LIMIT 1) AS event
ORDER BY kind.type
""")  # noqa: S608 - ours

# What led to an event, from it backwards, each by the id that its headers name; what is purged ends it.
CAUSES = Statement("""
WITH RECURSIVE cause AS (
  SELECT position, event_id, event_type, aggregate_type, aggregate_id, aggregate_key, created_at,
         headers ->> 'causation_id' AS caused_by, 0 AS depth, NULL::uuid AS parent
  FROM {outbox_events} WHERE event_id = :event_id
  UNION ALL
  SELECT event.position, event.event_id, event.event_type, event.aggregate_type, event.aggregate_id,
         event.aggregate_key, event.created_at, event.headers ->> 'causation_id', cause.depth - 1, NULL::uuid
  FROM cause JOIN {outbox_events} AS event ON event.event_id = CASE
    WHEN cause.caused_by ~ '^[0-9a-fA-F]{{8}}(-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}$' THEN cause.caused_by::uuid END
  WHERE cause.depth > -:depth_max::int
)
SELECT * FROM cause ORDER BY depth, position
""")

# What an event led to, generation by generation, of each so many.
EFFECTS = Statement("""
WITH RECURSIVE effect AS (
  SELECT position, event_id, event_type, aggregate_type, aggregate_id, aggregate_key, created_at, 0 AS depth,
         NULL::uuid AS parent
  FROM {outbox_events} WHERE event_id = :event_id
  UNION ALL
  SELECT next.*, effect.depth + 1, effect.event_id
  FROM effect CROSS JOIN LATERAL (
    SELECT position, event_id, event_type, aggregate_type, aggregate_id, aggregate_key, created_at
    FROM {outbox_events} AS event
    WHERE "left"(headers ->> 'causation_id', 64) = effect.event_id::text AND headers ? 'causation_id'
      AND event.event_id <> effect.event_id
    LIMIT :children_max) AS next
  WHERE effect.depth < :depth_max::int
)
SELECT * FROM effect LIMIT :events_max
""")

# What some events say.
PAYLOADS = Statement("""
SELECT position, event_type, payload::text AS payload FROM {outbox_events} WHERE position = ANY (:positions::bigint[])
""")

# The position from which on nothing was stored before a moment is found by `inspection.SINCE`; this is behind the last.
BEHIND_LAST = Statement("SELECT coalesce(max(position), 0) + 1 AS position FROM {outbox_events}")

# Whether there is such an event, or a subscription of that name.
IS_EVENT = Statement("""
SELECT EXISTS (SELECT FROM {outbox_events} WHERE event_id = :event_id::uuid)
    OR EXISTS (SELECT FROM {outbox_events} WHERE position = :position::bigint) AS found
""")
IS_NAME = Statement("SELECT EXISTS (SELECT FROM {outbox_subscriptions} WHERE name = :name) AS found")
