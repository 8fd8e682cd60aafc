"""What an operator asks costs what it looks at, whatever the server believes of a table (O1, R13).

One subscription has yet to pass all of the log, one has passed it but for a transaction that has written half of it,
and of the deliveries most are done.
"""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest

from outbox_kernel.infrastructure.operations.desk import Desk
from outbox_kernel.infrastructure.outbox.sql import inspection, listing, operations, standing
from outbox_kernel.infrastructure.outbox.sql.named import Statement
from tests.plans import ROWS, Asked, offences, plans_of

pytestmark = pytest.mark.servers

# The transaction that has written half of them, and one of another server's.
GIANT, RESTORED = 7, 10**15
UNFINISHED = 500
GROW = (
    f"""
    INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
                               payload, occurred_at, xid)
    SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 'bank.noted', 1, 'bank.wallet',
           ('00000000-0000-0000-0000-' || lpad((n % 1000)::text, 12, '0'))::uuid, n, '{{}}', clock_timestamp(),
           CASE WHEN n <= {ROWS} / 10 THEN '{RESTORED}' WHEN n % 2 = 0 THEN '{GIANT}' ELSE '5' END::xid8
    FROM generate_series(1, {ROWS}) AS n
    """,
    """
    INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status, attempts)
    SELECT event_id, position, 'head', 'bank.wallet:' || aggregate_id,
           CASE WHEN position % 400 = 0 THEN 'dead' WHEN position % 400 = 200 THEN 'waiting' ELSE 'done' END, 1
    FROM outbox_events
    """,
    f"""
    INSERT INTO outbox_arrivals (position, event_id, aggregate_id, event_type, source)
    SELECT {ROWS} + position, event_id, aggregate_id, event_type, 'q' FROM outbox_events WHERE position % 2 = 0
    """,
    "INSERT INTO outbox_receipts (event_id, handler) SELECT event_id, 'head' FROM outbox_events",
    f"INSERT INTO outbox_servers (identifier, floor) SELECT 'one', {ROWS} / 10",
    """
    INSERT INTO outbox_subscriptions (name, kind, patterns, source)
    SELECT name, 'handler', '{bank.*}', source
    FROM unnest(ARRAY['far', 'head', 'queue'], ARRAY[NULL, NULL, 'q']) AS named (name, source)
    """,
    f"""
    INSERT INTO outbox_progress (reader, number, position, server, snapshot)
    SELECT ('00000000-0000-0000-0000-00000000000' || reader)::uuid, n,
           CASE WHEN reader = 1 THEN {ROWS} / 10 ELSE n * 2 END, 1,
           CASE WHEN reader = 1 THEN '4:4:' ELSE '3:999999999:3,{GIANT}' END::pg_snapshot
    FROM generate_series(1, {ROWS}) AS n, generate_series(1, 2) AS reader
    """,
    """
    INSERT INTO outbox_cursors (subscription, shard, reader)
    SELECT name, shard, CASE WHEN name = 'far' THEN '00000000-0000-0000-0000-000000000001'
                        ELSE '00000000-0000-0000-0000-000000000002' END::uuid
    FROM unnest(ARRAY['far', 'head', 'queue']) AS name, generate_series(0, 31) AS shard
    """,
)
AN_EVENT = UUID("00000000-0000-0000-0000-000000070200")
WALLET = UUID("00000000-0000-0000-0000-000000000200")
LIST: dict[str, Any] = {"pattern": None, "first": None, "limit": 20}
OF_HEAD: dict[str, Any] = {"event_id": None, "handler": "head", "pattern": None, "types": None, "ids": None}
SOME: dict[str, Any] = {
    "event_ids": [UUID(f"00000000-0000-0000-0000-{n:012}") for n in range(200, 20_200, 200)],
    "handlers": ["head"] * 100,
}
STATES = (None, "pending", "open", "delivered", "dead")


def asked(statement: Statement, blocks_max: int, **values: Any) -> Asked[Desk]:
    async def ask(desk: Desk) -> None:
        await desk.run(statement, **values)

    return Asked(ask, blocks_max)


ASKED = {
    "lag": asked(standing.LAG, 20_000, name=None, look_max=1_000),
    "how many": asked(standing.EVENTS_THERE_ARE, 500, count_bytes_max=0),
    "first": asked(standing.FIRST, 100),
    "oldest": asked(standing.OLDEST, 500, position=ROWS // 2),
    "oldest delivery": asked(standing.OLDEST, 500, position=None),
    "subscriptions": asked(standing.SUBSCRIPTIONS_AND_DELIVERIES, 2_000),
    "what waits": asked(inspection.WAITING_KINDS, 3_000),
    "aggregate types": asked(inspection.AGGREGATE_TYPES, 100),
    "since": asked(inspection.SINCE, 500, since=None),
    **{
        f"events: {status}": asked(listing.events(status, of_aggregate=False), blocks_max, **LIST)
        for status, blocks_max in zip(STATES, (3_000, 20_000, 6_000, 8_000, 6_000), strict=True)
    },
    **{
        f"events of an aggregate: {status}": asked(
            listing.events(status, of_aggregate=True), 8_000, **LIST, types=["bank.wallet"], ids=[WALLET]
        )
        for status in STATES
    },
    "an event": asked(inspection.EVENT, 300, event_id=AN_EVENT, position=None),
    "an event by its position": asked(inspection.EVENT, 300, event_id=None, position=ROWS // 2),
    "an aggregate": asked(inspection.HISTORY, 15_000, types=["bank.wallet"], ids=[WALLET]),
    "who is due": asked(inspection.SUBSCRIPTIONS_OF, 500, event_id=AN_EVENT),
    "its deliveries": asked(inspection.DELIVERIES_OF, 100, event_ids=[AN_EVENT]),
    "its receipts": asked(inspection.RECEIPTS, 100, event_ids=[AN_EVENT]),
    "what stands before it": asked(
        inspection.EARLIER_DELIVERY, 100, order_key=f"bank.wallet:{WALLET}", handler="head", position=70_200
    ),
    "failed": asked(inspection.FAILED, 12_000, limit=100),
    "orphans": asked(inspection.ORPHANS, 500),
    "choose for retry": asked(operations.CHOOSE_DELIVERIES, 6_000, **OF_HEAD, statuses=["dead"]),
    "choose of one event": asked(
        operations.CHOOSE_DELIVERIES, 300, **{**OF_HEAD, "event_id": AN_EVENT}, statuses=["dead"]
    ),
    "lock": asked(operations.LOCK_DELIVERIES, 1_500, **SOME),
    "retry": asked(operations.RETRY, 8_000, **SOME),
    "skip": asked(operations.SKIP, 7_000, **SOME),
    "skip ahead": asked(operations.SKIP_AHEAD, 6_000, **SOME),
    "what is asked for": asked(
        operations.ASKED_FOR, 300, name="head", event_id=AN_EVENT, types=None, ids=None
    ),
    "what is asked for of an aggregate": asked(
        operations.ASKED_FOR, 8_000, name="head", event_id=None, types=["bank.wallet"], ids=[WALLET]
    ),
    "replay": asked(operations.REPLAY, 10_000, name="head", positions=list(range(1, 101)), again=True),
    "forget effects": asked(
        operations.FORGET_EFFECTS, 6_000, name="head", position=ROWS // 2, last=ROWS, events_max=100
    ),
    "the view, by psql": asked(
        Statement(
            "SELECT * FROM {outbox_status} WHERE status = 'delivered' ORDER BY log_position DESC LIMIT 20"
        ),
        8_000,
    ),
    "positions": asked(inspection.SEQUENCE, 100),
}


async def test_what_an_operator_asks_costs_what_it_looks_at(outbox: Any) -> None:
    connection = outbox.desk.connection

    async def grow() -> None:
        for statement in GROW:
            await connection.execute(statement)

    def desk(noting: object) -> Desk:
        return Desk(cast("asyncpg.Connection", noting))

    kept, new = await plans_of(connection, ASKED, desk, grow)
    assert offences(kept, ASKED) == []
    assert offences(new, ASKED) == []
