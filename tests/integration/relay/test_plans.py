"""Each statement of a relay has one right plan, whatever the server believes of a table (R10, R13).

It is planned while the tables are empty and nothing was ever analysed, and that plan is kept while they grow.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import attrs
import pytest
import pytest_asyncio

from outbox_kernel.infrastructure.outbox.sql.named import Statement
from outbox_kernel.infrastructure.outbox.sql.retention import (
    PURGE_EVENTS,
    PURGE_PROGRESS,
    PURGE_READERS,
    PURGE_RECEIPTS,
)
from outbox_kernel.infrastructure.relay.deliveries import Deliveries
from outbox_kernel.infrastructure.relay.line import Line
from outbox_kernel.infrastructure.relay.lines import BY_INDEX
from outbox_kernel.infrastructure.relay.log import Log, Narrowed
from outbox_kernel.infrastructure.relay.place import Late, Place, Server
from outbox_kernel.infrastructure.relay.reader import Reader
from outbox_kernel.infrastructure.relay.rows import Outcome
from tests.relaying import Stage, carrying

pytestmark = pytest.mark.servers

ROWS = 100_000
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
    # A dozen turns of ours.
    "UPDATE outbox_deliveries SET status = 'waiting' WHERE handler = 'h' AND position <= 48",
    """
    INSERT INTO outbox_receipts (event_id, handler) SELECT event_id, 'h' FROM outbox_events
    """,
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
)

OWN = "UPDATE outbox_cursors SET reader = $1, lease_relay = $2, lease_epoch = $3 WHERE subscription = 'j'"


@attrs.define
class Noting:
    """A relay's line that runs nothing, and keeps what it is given."""

    statement: str = ""
    arguments: tuple[Any, ...] = ()

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        self.statement, self.arguments = statement, arguments
        return [{"held": True}]

    async def fetch_as(self, _: type, statement: str, *arguments: Any) -> list[Any]:
        await self.fetch(statement, *arguments)
        report = {
            "held": True,
            "snapshot": "1:1:",
            "revision": 0,
            "scanned": None,
            "late_after": None,
            "behind": None,
        }
        return [{"report": json.dumps(report)}]


def place(position: int, snapshot: str = "3:3:") -> Place:
    return Place(position, snapshot, Server(1, 0))


async def read(
    log: Log, start: Place, types: tuple[str, ...] = (), shards: Any = None, source: str | None = None
) -> None:
    await log.read(start, start.server, Narrowed(source, types, (), shards), ["h", "i"], 100)


async def glance(log: Log, start: Place) -> None:
    await log.glance(start, start.server, ["h", "i"], 16)


def moved(count: int) -> Any:
    """Progress of so many readers."""
    return [
        (
            Reader(UUID(int=number + 10), "h", frozenset([number]), place(0)),
            [SimpleNamespace(end=place(7), events=1)],
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


async def claim(log: Log, known: list[tuple[str, str]]) -> None:
    await Deliveries(log, carrying("h", "i"))._claim({}, known, suspects=False)  # noqa: SLF001 - the statement itself


async def purge(log: Log, statement: Statement, window: dict[str, Any]) -> None:
    """Of a hundred rows, all of them old; its settings have the planner find what a connection that reads finds."""
    await log.run(statement, rows_max=100, days=-1.0, is_free=True, **window)


WINDOW = {"after": 1_000, "span_max": 10_000, "receipt_days": -1.0}
OF_RECEIPTS = {"after": UUID(int=0x1000)}
OF_PROGRESS: dict[str, Any] = {"readers": [READER], "after": [1_000]}
KNOWN = [("h", f"bank.wallet:{UUID(int=number)}") for number in range(10)]


@attrs.frozen
class Asked:
    """What a relay asks, how many blocks that may touch, and whether on the connection that only reads.

    A hundred rows are asked for at once, and each may look into an index a few times. How deep that index is depends
    on what was there before.
    """

    ask: Callable[[Log], Awaitable[None]]
    blocks_max: int
    only_reads: bool = False


ASKED = {
    "read far behind": Asked(lambda log: read(log, place(0)), 1_500, only_reads=True),
    "read at the head": Asked(
        lambda log: read(log, place(ROWS - 100, "3:999999999:3,4,5")), 1_500, only_reads=True
    ),
    "read at the head, where much is late": Asked(
        lambda log: read(log, place(ROWS - 100, f"3:999999999:3,{GIANT}")), 2_500, only_reads=True
    ),
    "read on through what was late": Asked(
        lambda log: read(log, attrs.evolve(place(ROWS), late=Late(ROWS // 2, "999999999:999999999:"))),
        1_500,
        only_reads=True,
    ),
    "glance far behind": Asked(lambda log: glance(log, place(0)), 500, only_reads=True),
    "glance, with late ones": Asked(
        lambda log: glance(log, place(ROWS - 100, f"3:999999999:3,{GIANT}")), 1_000, only_reads=True
    ),
    "read some types": Asked(lambda log: read(log, place(0), types=("bank.noted",)), 1_500, only_reads=True),
    "read no such type": Asked(lambda log: read(log, place(0), types=("shop.sold",)), 1_500, only_reads=True),
    "read some shards": Asked(lambda log: read(log, place(0), shards=SHARDS), 1_500, only_reads=True),
    "read some of both": Asked(
        lambda log: read(log, place(0), types=("bank.noted",), shards=SHARDS), 1_500, only_reads=True
    ),
    "purge events": Asked(lambda log: purge(log, PURGE_EVENTS, WINDOW), 4_000, only_reads=True),
    "purge receipts": Asked(lambda log: purge(log, PURGE_RECEIPTS, OF_RECEIPTS), 2_000, only_reads=True),
    "purge progress": Asked(lambda log: purge(log, PURGE_PROGRESS, OF_PROGRESS), 3_000, only_reads=True),
    "purge readers": Asked(lambda log: purge(log, PURGE_READERS, {}), 1_500, only_reads=True),
    "read what a queue brings": Asked(lambda log: read(log, place(0), source="q"), 2_500, only_reads=True),
    "read a queue's at the head": Asked(
        lambda log: read(log, place(ROWS - 100, "3:999999999:3,4,5"), source="q"), 2_500, only_reads=True
    ),
    "read what no queue brings": Asked(lambda log: read(log, place(0), source="z"), 2_500, only_reads=True),
    "move": Asked(lambda log: log.move(moved(32), []), 600),
    "leave and move": Asked(lambda log: log.move(moved(2), left(50)), 2_000),
    "take": Asked(take, 1_500),
    "join": Asked(lambda log: log.join(ours(), moved(1)[0][0]), 1_500),
    "give": Asked(lambda log: log.give(ours(), range(32), READER), 1_500),
    "claim all": Asked(lambda log: claim(log, []), 1_500),
    "claim known": Asked(lambda log: claim(log, KNOWN), 1_500),
}


@attrs.frozen
class Prepared:
    """A statement that has been planned."""

    name: str
    execute: str
    settings: dict[str, str]

    @classmethod
    async def of(cls, stage: Stage, log: Log, number: int, asked: Asked) -> Prepared:
        """Have it planned for empty tables."""
        noting = Noting()
        await asked.ask(attrs.evolve(log, line=cast("Line", noting)))
        name = f"asked_{number}"
        execute = f"EXECUTE {name} ({', '.join(map(literal, noting.arguments))})"
        prepared = cls(name, execute, BY_INDEX if asked.only_reads else {})
        await stage.witness.execute(f"PREPARE {name} AS {noting.statement}")
        await prepared.run(stage, execute)
        return prepared

    async def explain(self, stage: Stage) -> dict[str, Any]:
        told = await self.run(stage, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {self.execute}")
        plan: dict[str, Any] = json.loads(told)[0]["Plan"]
        return plan

    async def run(self, stage: Stage, statement: str) -> Any:
        """Run it, and undo it."""
        transaction = stage.witness.transaction()
        await transaction.start()
        for name, value in self.settings.items():
            await stage.witness.execute(f"SET LOCAL {name} = '{value}'")
        answer = await stage.witness.fetchval(statement)
        await transaction.rollback()
        return answer


@pytest_asyncio.fixture
async def plans(stage: Stage) -> AsyncIterator[dict[str, dict[str, Any]]]:
    """The plan of each statement, as it has run over full tables."""
    log, witness = await stage.log(), stage.witness
    transaction = witness.transaction()
    await transaction.start()
    await witness.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    prepared = {
        what: await Prepared.of(stage, log, number, asked)
        for number, (what, asked) in enumerate(ASKED.items())
    }
    for statement in GROW:
        await witness.execute(statement)
    await witness.execute(OWN, OTHER, log.lease.relay, log.lease.epoch)
    yield {what: await each.explain(stage) for what, each in prepared.items()}
    await transaction.rollback()
    await witness.execute("DEALLOCATE ALL")


async def test_plans_for_empty_tables_are_right_for_full_ones(plans: dict[str, dict[str, Any]]) -> None:
    """None reads a table that grows, or sorts it, or touches more than it must."""
    found = {what: [told(node) for node in nodes(plan) if is_dear(node)] for what, plan in plans.items()}
    assert {what: dear for what, dear in found.items() if dear} == {}
    touched = {what: (blocks(plan), ASKED[what].blocks_max) for what, plan in plans.items()}
    assert {what: both for what, both in touched.items() if both[0] > both[1]} == {}


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {key: value for key, value in plan.items() if key != "Plans"}
    for below in plan.get("Plans", []):
        yield from nodes(below)


def is_dear(node: dict[str, Any]) -> bool:
    growing = ("outbox_events", "outbox_arrivals", "outbox_deliveries", "outbox_progress", "outbox_receipts")
    if node["Node Type"] == "Seq Scan":
        return bool(node["Relation Name"] in growing)
    # A bitmap of one row is a look into an index as any other.
    by_all = "Sort" in node["Node Type"] or node["Node Type"].startswith("Bitmap")
    return bool(by_all and node["Actual Rows"] > ROWS / 50)


def told(node: dict[str, Any]) -> str:
    return f"{node['Node Type']} {node.get('Relation Name', '')} {node['Actual Rows']} rows"


def blocks(plan: dict[str, Any]) -> int:
    # What nobody reads from runs at the end, and is in no sum.
    apart = [each for each in plan.get("Plans", []) if each["Node Type"] == "ModifyTable"]
    return sum(int(each["Shared Hit Blocks"] + each["Shared Read Blocks"]) for each in (plan, *apart))


def literal(value: Any) -> str:
    """A value as a statement has it."""
    if value is None:
        return "NULL"
    if isinstance(value, (list, tuple, frozenset)):
        value = "{" + ",".join("NULL" if each is None else json.dumps(str(each)) for each in value) + "}"
    return "'" + str(value).replace("'", "''") + "'"
