"""Gauges: how things stand, in numbers, all of it by one statement and so at one moment (O4).

What a number means is said where `status` asks for it; here the same statements stand side by side.
"""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import HIGHEST, NOW
from outbox_kernel.infrastructure.outbox.sql.inspection import ORPHANS, RELAYS, WAITING_KINDS
from outbox_kernel.infrastructure.outbox.sql.named import Statement
from outbox_kernel.infrastructure.outbox.sql.standing import (
    EVENTS_THERE_ARE,
    LAG,
    SUBSCRIPTIONS_AND_DELIVERIES,
)

# Deliveries that wait behind a dead one of their aggregate, by handler.
_PARKED = """
SELECT handler AS name, count(*) AS deliveries FROM {outbox_deliveries} AS parked
WHERE status = 'waiting' AND EXISTS (
  SELECT FROM {outbox_deliveries} AS dead
  WHERE NOT dead.settled AND dead.status = 'dead' AND dead.order_key = parked.order_key
    AND dead.handler = parked.handler AND dead.position < parked.position)
GROUP BY handler
"""

# How old the oldest event is that a delivery is to be run of now.
_OLDEST_DELIVERY = f"""
SELECT extract(epoch FROM {NOW} - greatest(created_at, not_before))::float8 FROM {{outbox_events}}
WHERE event_id = (
  SELECT event_id FROM {{outbox_deliveries}}
  WHERE status IN ('waiting', 'leased') AND (attempts > 0 OR available_at <= {NOW}) ORDER BY position LIMIT 1)
"""  # noqa: S608 - the rule is ours

# How old the first event of all is.
_FIRST = (
    f"SELECT extract(epoch FROM {NOW} - created_at)::float8 FROM {{outbox_log}} ORDER BY position LIMIT 1"  # noqa: S608
)

# Before anybody has subscribed, all events there are wait for whoever is the first.
_IS_READ = "EXISTS (SELECT FROM {outbox_subscriptions})"


def _rows(statement: str) -> str:
    return f"(SELECT coalesce(jsonb_agg(to_jsonb(found)), '[]')::text FROM ({statement}) AS found)"  # noqa: S608 - ours


# All of it, in one row: lists of rows as JSON, and single numbers.
GAUGES = Statement(f"""
SELECT {_rows(RELAYS.text)} AS relays, {_rows(LAG.text)} AS lags,
       {_rows(SUBSCRIPTIONS_AND_DELIVERIES.text)} AS subscriptions, {_rows(WAITING_KINDS.text)} AS kinds,
       {_rows(_PARKED)} AS parked, (SELECT leases FROM ({ORPHANS.text}) AS orphans) AS orphans,
       {HIGHEST} AS position, ({_OLDEST_DELIVERY}) AS oldest_delivery_seconds,
       CASE WHEN NOT {_IS_READ} THEN (SELECT events FROM ({EVENTS_THERE_ARE.text}) AS there_are) END AS unread,
       CASE WHEN NOT {_IS_READ} THEN ({_FIRST}) END AS unread_seconds
""")  # noqa: S608 - the statements are ours
