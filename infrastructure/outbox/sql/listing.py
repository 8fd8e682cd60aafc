"""Listing events, the newest first: all of them, or those of one status, none of it by reading the whole log (O1)."""

from __future__ import annotations

from functools import cache

from outbox_kernel.infrastructure.outbox.sql.fragments import IS_FAR_AHEAD, UNFINISHED, like
from outbox_kernel.infrastructure.outbox.sql.inspection import BECAME, OF_AGGREGATE, SUMMARY
from outbox_kernel.infrastructure.outbox.sql.limits import LATE_EVENTS_MAX
from outbox_kernel.infrastructure.outbox.sql.named import Statement

_ASKED = """
(:pattern::text IS NULL OR event.event_type ~ :pattern) AND (:first::bigint IS NULL OR event.position >= :first)
"""
_IS = "(SELECT became.status FROM {outbox_status} AS became WHERE became.event_id = event.event_id LIMIT 1)"
# By CASE, which is worked out in its order: of what is pending for sure nothing more is asked.
_HAS_COME_TO = f"{_ASKED} AND CASE WHEN {IS_FAR_AHEAD} THEN false ELSE {_IS} = '<status>' END"
_NEWEST = "ORDER BY position DESC LIMIT :limit"

_BY_ID = """
CROSS JOIN LATERAL (SELECT * FROM {outbox_events} AS event WHERE event.event_id = found.event_id LIMIT 1) AS event
"""

# From the end of the log on.
_ALL = f"SELECT * FROM {{outbox_events}} AS event WHERE {_ASKED} {_NEWEST}"  # noqa: S608 - ours
_DELIVERED = f"SELECT * FROM {{outbox_events}} AS event WHERE {_HAS_COME_TO} {_NEWEST}"  # noqa: S608 - ours

# From the last delivery on that is not over.
_WITH_DELIVERY = f"""
SELECT event.* FROM (
  SELECT DISTINCT ON (position) position, event_id FROM {{outbox_deliveries}}
  WHERE {UNFINISHED} AND status = ANY (ARRAY[<states>]) ORDER BY position DESC) AS found
{_BY_ID} WHERE {_HAS_COME_TO} ORDER BY found.position DESC LIMIT :limit
"""  # noqa: S608 - ours

# What is pending stands above the lowest place there is, or has become visible below it since, or was brought again by
# a queue, above. Before anybody has subscribed all of it is. Above, whoever is due stands before it, as can be told of
# an event without looking further. What was late is looked for as it is read; `reading` says why.
_DUE = f"""
  SELECT source, ARRAY(SELECT {like("pattern")} FROM unnest(patterns) AS pattern) AS patterns, place.*
  FROM {{outbox_subscriptions}} CROSS JOIN LATERAL (
    SELECT coalesce(min(position), 0) AS position, coalesce(min(floor), 0) AS floor,
           min(pg_snapshot_xmax(snapshot)) AS xmax, array_agg(DISTINCT snapshot::text) AS snapshots
    FROM {{outbox_cursor_places}} WHERE subscription = name) AS place
  WHERE retired_at IS NULL
"""  # noqa: S608 - the rule is ours
_IS_UNREAD = "NOT EXISTS (SELECT FROM {outbox_subscriptions} WHERE source IS NULL)"
_LOWEST = f"CASE WHEN {_IS_UNREAD} THEN 0 ELSE coalesce((SELECT min(position) FROM due), 0) END"  # noqa: S608 - ours
_STANDS_BEFORE = """(
  SELECT true FROM due WHERE event.position > due.position AND due.source IS NOT DISTINCT FROM event.source
    AND event.event_type LIKE ANY (due.patterns) LIMIT 1)"""
_LATE = f"""
SELECT event_id FROM {{outbox_log}} WHERE <which> AND position <= due.position AND position > due.floor
ORDER BY xid, position LIMIT {LATE_EVENTS_MAX}
"""  # noqa: S608 - ours
_BROUGHT_OR_LATE = f"""
(SELECT event_id FROM {{outbox_arrivals}} WHERE position > {_LOWEST} ORDER BY position DESC LIMIT {LATE_EVENTS_MAX})
UNION
SELECT late.event_id FROM due CROSS JOIN LATERAL (
  SELECT DISTINCT pg_snapshot_xip(snapshot::pg_snapshot) AS running FROM unnest(snapshots) AS snapshot) AS before
CROSS JOIN LATERAL ({_LATE.replace("<which>", "xid >= running AND xid <= running")}) AS late
WHERE running < xmax
UNION
SELECT late.event_id FROM due CROSS JOIN LATERAL ({_LATE.replace("<which>", "xid >= due.xmax")}) AS late
"""  # noqa: S608 - ours
_PENDING = f"""
WITH due AS MATERIALIZED ({_DUE})
SELECT DISTINCT ON (position) * FROM (
  (SELECT * FROM {{outbox_events}} AS event
   WHERE position > {_LOWEST} AND {_ASKED} AND CASE
     WHEN source IS NULL AND {_IS_UNREAD} THEN true WHEN {_STANDS_BEFORE} THEN {_IS} = 'pending' END
   {_NEWEST})
  UNION ALL
  (SELECT event.* FROM (
     SELECT event.event_id, event.position FROM ({_BROUGHT_OR_LATE}) AS found {_BY_ID}
     ORDER BY event.position DESC OFFSET 0) AS found
   {_BY_ID} WHERE {_ASKED} AND {_IS} = 'pending' LIMIT :limit)
) AS event {_NEWEST}
"""  # noqa: S608 - ours

# Of an aggregate there are few enough to have them all in their order.
_OF_AGGREGATE = f"""
SELECT event.* FROM (SELECT event.* FROM {OF_AGGREGATE} ORDER BY event.position DESC OFFSET 0) AS event
WHERE {_ASKED} AND <is asked> LIMIT :limit
"""  # noqa: S608 - ours

_PAGES = {
    None: _ALL,
    "pending": _PENDING,
    "open": _WITH_DELIVERY.replace("<states>", "'waiting', 'leased'"),
    "delivered": _DELIVERED,
    "dead": _WITH_DELIVERY.replace("<states>", "'dead'"),
}


@cache
def events(status: str | None, *, of_aggregate: bool) -> Statement:
    """Return the statement that lists events of one status or all, of an aggregate or any."""
    if of_aggregate:
        page = _OF_AGGREGATE.replace("<is asked>", "true" if status is None else f"{_IS} = '<status>'")
    else:
        page = _PAGES[status]
    return Statement(
        f"SELECT {SUMMARY} FROM ({page.replace('<status>', status or '')}) AS event {BECAME} "  # noqa: S608 - ours
        "ORDER BY event.position DESC LIMIT :limit"
    )
