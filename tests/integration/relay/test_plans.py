"""Each statement of a relay has one right plan, whatever the server believes of a table (R10, R13).

One that was planned while the tables were empty is kept while they grow, and another is made by their statistics.
"""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import attrs
import pytest

from outbox_kernel.infrastructure.outbox.delivery import Outcome
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.outbox.sql import cursors
from outbox_kernel.infrastructure.outbox.sql.named import Statement
from outbox_kernel.infrastructure.outbox.sql.retention import (
    PURGE_EVENTS,
    PURGE_PROGRESS,
    PURGE_READERS,
    PURGE_RECEIPTS,
)
from outbox_kernel.infrastructure.relay.cursor import Late, Place, Reader, Server
from outbox_kernel.infrastructure.relay.deliveries import Deliveries
from outbox_kernel.infrastructure.relay.log import Log, Wanted
from tests.plans import ROWS, Asked, offences, plans_of
from tests.relaying import Stage, carrying

pytestmark = pytest.mark.servers

# The transaction that has written half of them.
GIANT = 7
READER, OTHER = UUID(int=1), UUID(int=2)
SHARDS = frozenset(range(0, 32, 2))
GROW = (
    f"""
    INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
                               payload, occurred_at, xid)
    SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 'bank.noted', 1, 'bank.wallet',
           ('00000000-0000-0000-0000-' || lpad((n % 1000)::text, 12, '0'))::uuid, n, '{{}}', clock_timestamp(),
           CASE WHEN n <= {ROWS} / 2 THEN '{GIANT}' ELSE pg_current_xact_id() END
    FROM generate_series(1, {ROWS}) AS n
    """,
    """
    INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status)
    SELECT event_id, position, CASE WHEN position % 4 = 0 THEN 'h' ELSE 'others' END,
           'bank.wallet:' || aggregate_id, CASE WHEN position % 2 = 0 THEN 'done' ELSE 'waiting' END
    FROM outbox_events
    """,
    f"""
    INSERT INTO outbox_arrivals (position, event_id, aggregate_id, event_type, source)
    SELECT {ROWS} + position, event_id, aggregate_id, event_type, 'q' FROM outbox_events
    """,
    # Dead letters of one handler, each of an aggregate of its own.
    """
    INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status)
    SELECT event_id, position, 'dying', 'bank.wallet:' || event_id, 'dead' FROM outbox_events WHERE position <= 10000
    """,
    # As many of one that lets later ones pass.
    """
    INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status, on_dead)
    SELECT event_id, position, 'passing', 'bank.wallet:' || event_id, 'dead', 'continue' FROM outbox_events
    WHERE position <= 10000
    """,
    # A dozen turns of ours.
    "UPDATE outbox_deliveries SET status = 'waiting' WHERE handler = 'h' AND position <= 48",
    """
    INSERT INTO outbox_receipts (event_id, handler) SELECT event_id, 'h' FROM outbox_events
    """,
    f"DELETE FROM outbox_arrivals WHERE position BETWEEN {ROWS} + 4000 AND {ROWS} + 5000",
    "DELETE FROM outbox_events WHERE position BETWEEN 4000 AND 5000",
    f"""
    INSERT INTO outbox_progress (reader, number, position, server, snapshot)
    SELECT CASE WHEN n % 2 = 0 THEN '{READER}'::uuid ELSE '{OTHER}'::uuid END, n, n, 1, pg_current_snapshot()
    FROM generate_series(1, {ROWS}) AS n
    """,
    f"""
    INSERT INTO outbox_cursors (subscription, shard, reader)
    SELECT name, shard, '{READER}' FROM unnest(ARRAY['h', 'i', 'j']) AS name, generate_series(0, 31) AS shard
    """,
    f"""
    INSERT INTO outbox_cursors (subscription, shard, reader, rewind_to)
    SELECT name, shard, '{READER}', goes_to
    FROM (VALUES ('dying', 0), ('passing', 9900)) AS back (name, goes_to), generate_series(0, 31) AS shard
    """,
)

OWN = "UPDATE outbox_cursors SET reader = $1, lease_relay = $2, lease_epoch = $3 WHERE subscription = 'j'"


def place(position: int, snapshot: str = "3:3:") -> Place:
    return Place(position, snapshot, Server(1, 0))


async def read(
    log: Log,
    start: Place,
    types: tuple[str, ...] = (),
    shards: Any = None,
    source: str | None = None,
    name: str = "h",
) -> None:
    await log.read(start, start.server, Wanted(source, types, (), shards, [name, "i"], 100))


async def glance(log: Log, start: Place) -> None:
    await log.glance(start, start.server, Wanted(None, (), (), None, ["h", "i"], 100))


def moved(count: int) -> Any:
    """Progress of so many readers."""
    return [
        (
            Reader(UUID(int=number + 10), "h", frozenset([number]), place(0)),
            [SimpleNamespace(end=place(7), positions=[7])],
        )
        for number in range(count)
    ]


def ours() -> Reader:
    """The reader of cursors that the relay owns."""
    return Reader(OTHER, "j", frozenset(range(32)), place(0))


def left(count: int) -> list[Outcome]:
    """Deliveries of so many events."""
    rows: Any = [{"event_id": UUID(int=n), "position": n, "not_before": None} for n in range(1, count + 1)]
    return [Outcome(row, "new", f"a:{row['position']}", "waiting") for row in rows]


async def take(log: Log) -> None:
    with suppress(KeyError):  # the answer is none
        await log.take((name, shard) for name in "hi" for shard in range(32))


async def go_back(log: Log, statement: Statement, whose: str, **given: Any) -> None:
    """A hundred at a time."""
    await log.run(statement, names=[whose] * 32, shards=[*range(32)], **given)


async def claim(log: Log, known: list[tuple[str, str]]) -> None:
    await Deliveries(log, carrying("h", "i"))._claim({}, known, suspects=False)  # noqa: SLF001 - the statement itself


async def purge(log: Log, statement: Statement, window: dict[str, Any]) -> None:
    """Of a hundred rows, all of them old."""
    await log.run(statement, rows_max=100, days=-1.0, is_free=True, **window)


WINDOW = {"after": 1_000, "span_max": 10_000, "receipt_days": -1.0}
OF_RECEIPTS = {"after": UUID(int=0x1000)}
OF_PROGRESS: dict[str, Any] = {"readers": [READER], "after": [1_000]}
KNOWN = [("h", f"bank.wallet:{UUID(int=number)}") for number in range(10)]


ASKED: dict[str, Asked[Log]] = {
    "read far behind": Asked(lambda log: read(log, place(0)), 1_500),
    "read beside dead letters of other aggregates": Asked(
        lambda log: read(log, place(ROWS - 100, "3:999999999:3,4,5"), name="dying"), 1_500
    ),
    "read at the head": Asked(lambda log: read(log, place(ROWS - 100, "3:999999999:3,4,5")), 1_500),
    "read at the head, where much is late": Asked(
        lambda log: read(log, place(ROWS - 100, f"3:999999999:3,{GIANT}")), 2_500
    ),
    "read on through what was late": Asked(
        lambda log: read(log, attrs.evolve(place(ROWS), late=Late(ROWS // 2, "999999999:999999999:"))), 1_500
    ),
    "glance far behind": Asked(lambda log: glance(log, place(0)), 500),
    "glance, with late ones": Asked(
        lambda log: glance(log, place(ROWS - 100, f"3:999999999:3,{GIANT}")), 1_000
    ),
    "read some types": Asked(lambda log: read(log, place(0), types=("bank.noted",)), 1_500),
    "read no such type": Asked(lambda log: read(log, place(0), types=("shop.sold",)), 1_500),
    "read some shards": Asked(lambda log: read(log, place(0), shards=SHARDS), 1_500),
    "read some of both": Asked(lambda log: read(log, place(0), types=("bank.noted",), shards=SHARDS), 1_500),
    "purge events": Asked(lambda log: purge(log, PURGE_EVENTS, WINDOW), 4_000),
    "purge receipts": Asked(lambda log: purge(log, PURGE_RECEIPTS, OF_RECEIPTS), 2_000),
    "purge progress": Asked(lambda log: purge(log, PURGE_PROGRESS, OF_PROGRESS), 3_000),
    "purge readers": Asked(lambda log: purge(log, PURGE_READERS, {}), 1_500),
    "read what a queue brings": Asked(lambda log: read(log, place(0), source="q"), 2_500),
    "read a queue's at the head": Asked(
        lambda log: read(log, place(ROWS - 100, "3:999999999:3,4,5"), source="q"), 2_500
    ),
    "read what no queue brings": Asked(lambda log: read(log, place(0), source="z"), 2_500),
    "move": Asked(lambda log: log.move(moved(32), []), 600),
    "leave and move": Asked(lambda log: log.move(moved(2), left(50)), 2_000),
    "take": Asked(take, 1_500),
    "join": Asked(lambda log: log.join(ours(), moved(1)[0][0]), 1_500),
    "give": Asked(lambda log: log.give(ours(), range(32), READER), 1_500),
    "drop what is ahead": Asked(lambda log: go_back(log, cursors.DROP_AHEAD, "dying", ahead_max=100), 4_000),
    "unsettle what is ahead": Asked(
        lambda log: go_back(log, cursors.UNSETTLE_AHEAD, "passing", ahead_max=100), 4_000
    ),
    "take what goes back": Asked(lambda log: go_back(log, cursors.TAKE_BACK, "passing"), 3_000),
    "claim all": Asked(lambda log: claim(log, []), 1_600),
    "claim known": Asked(lambda log: claim(log, KNOWN), 1_500),
}


async def test_each_statement_has_its_one_right_plan(stage: Stage) -> None:
    log, witness = await stage.log(), stage.witness

    async def grow() -> None:
        for statement in GROW:
            await witness.execute(statement)
        await witness.execute(OWN, OTHER, log.lease.relay, log.lease.epoch)

    def relay(noting: object) -> Log:
        return attrs.evolve(log, line=cast("Line", noting))

    kept, new = await plans_of(witness, ASKED, relay, grow)
    assert offences(kept, ASKED) == []
    assert offences(new, ASKED) == []
