"""Events that a queue brings: stored with their source, for that queue's handlers and nobody else (T3)."""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.named import Statement

# Whether what is there under an id is what came. A body in snake case repeats the context, and who knows the event's
# class tells its own fields from that: a name of the context that only one of the two has is nobody's difference.
# What is sealed by one key in both is the same if the texts are; where one of the two is clear, or has another key
# since its subject was forgotten, nobody can tell any more.
_IS_SAME = """
  (event.event_type, event.event_version) = (given.event_type, given.event_version)
  AND (event.aggregate_type, event.aggregate_id, event.aggregate_version)
    IS NOT DISTINCT FROM (given.aggregate_type, given.aggregate_id, given.aggregate_version)
  AND (
    SELECT event.payload - keys = given.payload::jsonb - keys
    FROM (SELECT ARRAY(
      SELECT key FROM jsonb_object_keys(event.headers || given.headers::jsonb) AS key
      WHERE NOT (event.payload ? key AND given.payload::jsonb ? key)
      UNION ALL SELECT '$sealed'
      UNION ALL SELECT jsonb_object_keys(coalesce(event.payload -> '$sealed', jsonb_build_object())
                                         || coalesce(given.payload::jsonb -> '$sealed', jsonb_build_object()))
      ) AS keys) AS repeated)
  AND NOT EXISTS (
    SELECT FROM jsonb_each(event.payload -> '$sealed') AS mine
    JOIN jsonb_each(given.payload::jsonb -> '$sealed') AS its USING (key)
    WHERE mine.value -> 'key' = its.value -> 'key' AND mine.value -> 'text' <> its.value -> 'text')
"""

# Store what a queue has brought, in the order in which it came: as events, or, of what was there already, as arrivals.
# Positions are drawn for all of it in that order. What the queue has brought before is there, and nothing is written.
# Returned are the numbers of those whose id another event has. An id or a number that others take at this moment fails
# the statement as a whole: what came behind it must not get ahead of it.
STORE = Statement(
    f"""
WITH given AS MATERIALIZED (
  SELECT nextval(pg_get_serial_sequence('{{outbox_events}}', 'position')) AS position, arrived.*
  FROM unnest(
    :event_id::uuid[], :event_type::text[], :event_version::int[], :aggregate_type::text[], :aggregate_id::uuid[],
    :aggregate_version::bigint[], :payload::text[], :headers::text[], :occurred_at::timestamptz[],
    :aggregate_key::text[], :sensitive::text[]
  ) WITH ORDINALITY AS arrived (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
                                payload, headers, occurred_at, aggregate_key, sensitive, number)
), present AS MATERIALIZED (
  SELECT given.position, given.number, given.event_id, given.aggregate_id, given.event_type, found.*
  FROM given CROSS JOIN LATERAL (
    SELECT event.source, {_IS_SAME} AS is_same
    FROM {{outbox_events}} AS event WHERE event.event_id = given.event_id LIMIT 1) AS found
), stored AS (
  INSERT INTO {{outbox_events}} (position, event_id, event_type, event_version, aggregate_type, aggregate_id,
                                 aggregate_version, payload, headers, occurred_at, aggregate_key, source, sensitive)
  OVERRIDING SYSTEM VALUE
  SELECT position, event_id, event_type, event_version, aggregate_type, aggregate_id,
         aggregate_version, payload::jsonb, headers::jsonb, occurred_at, aggregate_key, :queue, sensitive::jsonb
  FROM given WHERE position NOT IN (SELECT position FROM present) ORDER BY position
), arrived AS (
  INSERT INTO {{outbox_arrivals}} (position, event_id, aggregate_id, event_type, source)
  SELECT position, event_id, aggregate_id, event_type, :queue FROM present
  WHERE is_same AND source IS DISTINCT FROM :queue AND (
    SELECT true FROM {{outbox_arrivals}} AS arrival
    WHERE arrival.event_id = present.event_id AND arrival.source = :queue LIMIT 1) IS NULL
  ORDER BY position
)
SELECT number FROM present WHERE NOT is_same
"""  # noqa: S608 - the rule is ours
)
