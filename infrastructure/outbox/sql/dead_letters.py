"""Dead letters: counted by what they died of, listed in their order, and chosen a batch at a time (O3, R7)."""

from __future__ import annotations

from functools import cache

from outbox_kernel.infrastructure.outbox.sql.fragments import IS_HALF_DONE
from outbox_kernel.infrastructure.outbox.sql.named import Statement
from outbox_kernel.kernel.errors import SecondCommit

# How many each handler has, whatever they died of: by the same index.
COUNTS = Statement("""
SELECT handler, count(*) AS deliveries FROM {outbox_deliveries}
WHERE status = 'dead' AND (:handler::text IS NULL OR handler = :handler)
GROUP BY handler
""")

# How many are dead of what, by an index that has nothing else; with the newest of each.
GROUPS = Statement("""
SELECT dead.handler, dead.kind, dead.deliveries, newest.position, newest.event_id, newest.error_message,
       newest.updated_at, first.updated_at AS first_at
FROM (
  SELECT handler, error_kind AS kind, count(*) AS deliveries, min(position) AS first, max(position) AS last
  FROM {outbox_deliveries}
  WHERE status = 'dead' AND (:handler::text IS NULL OR handler = :handler)
  GROUP BY handler, error_kind ORDER BY count(*) DESC, handler, error_kind LIMIT :groups_max
) AS dead
CROSS JOIN LATERAL (
  SELECT event_id, position, error_message, updated_at FROM {outbox_deliveries} AS delivery
  WHERE status = 'dead' AND delivery.handler = dead.handler AND delivery.error_kind = dead.kind
    AND delivery.position = dead.last LIMIT 1) AS newest
CROSS JOIN LATERAL (
  SELECT updated_at FROM {outbox_deliveries} AS delivery
  WHERE status = 'dead' AND delivery.handler = dead.handler AND delivery.error_kind = dead.kind
    AND delivery.position = dead.first LIMIT 1) AS first
ORDER BY dead.deliveries DESC, dead.handler, dead.kind
""")

# A page of a handler's dead letters in the order of their turns, beyond a position: so many are looked at. Each row
# says how far that was; where nothing is found, there is one that says only this.
_PAGE = f"""
WITH looked_at AS MATERIALIZED (
  SELECT error_kind, position FROM {{outbox_deliveries}}
  WHERE status = 'dead' AND handler = :handler<of kind> AND position <beyond> ORDER BY position<way> LIMIT :look_max
), found AS MATERIALIZED (
  SELECT delivery.position, delivery.event_id, delivery.handler, delivery.order_key, delivery.settled,
         delivery.attempts, delivery.updated_at AS failed_at, delivery.error_message, delivery.error_kind AS kind,
         delivery.half_done, event.event_type, event.aggregate_type, event.aggregate_id, event.aggregate_key
  FROM looked_at CROSS JOIN LATERAL (
    SELECT *, coalesce({IS_HALF_DONE}, false) AS half_done FROM {{outbox_deliveries}} AS delivery
    WHERE status = 'dead' AND handler = :handler AND error_kind = looked_at.error_kind
      AND position = looked_at.position LIMIT 1) AS delivery
  CROSS JOIN LATERAL (
    SELECT * FROM {{outbox_events}} AS event WHERE event.event_id = delivery.event_id LIMIT 1) AS event
  WHERE (:since::timestamptz IS NULL OR delivery.updated_at >= :since)
    AND (:pattern::text IS NULL OR event.event_type ~ :pattern)
    AND (:types::text[] IS NULL OR event.aggregate_type = ANY (:types))
    AND (:ids::uuid[] IS NULL OR event.aggregate_id = ANY (:ids))
  ORDER BY delivery.position<way> LIMIT :letters_max
), extent AS (
  SELECT <furthest>(position) AS reached, count(*) AS looked_at FROM looked_at
)
"""  # noqa: S608 - the rule is ours
# With how many stand behind each.
_TOLD = """
SELECT extent.*, found.*, (
  SELECT count(*) FROM (
    SELECT FROM {outbox_deliveries} AS behind
    WHERE NOT behind.settled AND behind.handler = :handler AND behind.order_key = found.order_key
      AND behind.position > found.position LIMIT :behind_max) AS counted) AS behind
FROM extent LEFT JOIN found ON true ORDER BY found.position
"""
_CHOSEN = """
SELECT extent.*, position, event_id, handler, half_done FROM extent LEFT JOIN found ON true ORDER BY position
"""


@cache
def letters(*, of_kind: bool) -> Statement:
    """Return the statement that lists them, of one kind of error or of all."""
    return _page(_TOLD, of_kind=of_kind)


@cache
def chosen(*, of_kind: bool, backwards: bool) -> Statement:
    """Return the statement that chooses some of them, the first of their turns or, backwards, the last."""
    return _page(f"{_CHOSEN.rstrip()} DESC" if backwards else _CHOSEN, of_kind=of_kind, backwards=backwards)


def _page(told: str, *, of_kind: bool, backwards: bool = False) -> Statement:
    text = _PAGE + told
    for word, said in (
        ("<of kind>", " AND error_kind = :kind" if of_kind else ""),
        ("<beyond>", "< :beyond" if backwards else "> :beyond"),
        ("<way>", " DESC" if backwards else ""),
        ("<furthest>", "min" if backwards else "max"),
    ):
        text = text.replace(word, said)
    return Statement(text)


# How many there are of a handler, by the index alone.
COUNT = Statement("""
SELECT count(*) AS letters FROM {outbox_deliveries}
WHERE status = 'dead' AND handler = :handler AND (:kind::text IS NULL OR error_kind = :kind)
""")

# How many of them are half done. Few die of that: what they died of is in the index, and then only those are looked at.
HALF_DONE = Statement(f"""
SELECT count(*) AS letters FROM (
  SELECT DISTINCT error_kind FROM {{outbox_deliveries}}
  WHERE status = 'dead' AND handler = :handler AND (:kind::text IS NULL OR error_kind = :kind)
) AS died_of
CROSS JOIN LATERAL (
  SELECT FROM {{outbox_deliveries}} AS delivery
  WHERE status = 'dead' AND handler = :handler AND delivery.error_kind = died_of.error_kind AND {IS_HALF_DONE}
) AS half_done
WHERE died_of.error_kind LIKE '{SecondCommit.__name__}%'
""")  # noqa: S608 - the rule is ours

# A handler's dead letters of some events, in the order of their turns.
OF_EVENTS = Statement(f"""
SELECT delivery.position, delivery.event_id, delivery.handler, delivery.status,
       coalesce({IS_HALF_DONE}, false) AS half_done
FROM {{outbox_deliveries}} AS delivery
WHERE delivery.event_id = ANY (:event_ids::uuid[]) AND delivery.handler = :handler AND delivery.status = 'dead'
ORDER BY delivery.position
""")  # noqa: S608 - the rule is ours
