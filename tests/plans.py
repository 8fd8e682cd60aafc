"""What the server makes of a statement while tables are full, whatever it knew of them when it planned it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import attrs

from outbox_kernel.infrastructure.outbox.sql import at_home
from outbox_kernel.infrastructure.postgres.pinning import BY_INDEX

T = TypeVar("T")

# So many rows in each table that grows.
ROWS = 100_000
GROWING = ("outbox_events", "outbox_arrivals", "outbox_deliveries", "outbox_progress", "outbox_receipts")

Plan = dict[str, Any]


@attrs.define
class Noting:
    """A connection that runs nothing, and keeps what it is given."""

    statement: str = ""
    arguments: tuple[Any, ...] = ()

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        self.statement, self.arguments = at_home(statement, None), arguments
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


@attrs.frozen
class Asked(Generic[T]):
    """What somebody asks, and how many blocks that may touch.

    A hundred rows are asked for at once, and each may look into an index a few times. How deep that index is depends
    on what was there before.
    """

    ask: Callable[[T], Awaitable[Any]]
    blocks_max: int


@attrs.frozen
class Prepared:
    """A statement that has been planned."""

    connection: Any
    name: str
    noted: Noting

    async def plan(self) -> None:
        """Have it planned for the tables as they are."""
        await self.connection.execute(f"PREPARE {self.name} AS {self.noted.statement}")
        await self.run(self._execute)

    async def plan_anew(self) -> None:
        """Have it planned once more."""
        await self.connection.execute(f"DEALLOCATE {self.name}")
        await self.plan()

    async def explain(self) -> Plan:
        [[told]] = await self.run(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {self._execute}")
        plan: Plan = json.loads(told)[0]["Plan"]
        return plan

    async def run(self, statement: str) -> list[Any]:
        """Run it, and undo it."""
        transaction = self.connection.transaction()
        await transaction.start()
        for name, value in BY_INDEX.items():
            await self.connection.execute(f"SET LOCAL {name} = '{value}'")
        rows: list[Any] = await self.connection.fetch(statement)
        await transaction.rollback()
        return rows

    @property
    def _execute(self) -> str:
        given = ", ".join(map(literal, self.noted.arguments))
        return f"EXECUTE {self.name} ({given})" if given else f"EXECUTE {self.name}"


async def plans_of(
    connection: Any,
    asked: Mapping[str, Asked[T]],
    to: Callable[[Noting], T],
    grow: Callable[[], Awaitable[None]],
) -> list[dict[str, Plan]]:
    """Return how each has run over full tables: planned for empty ones, and for what the server knows of these.

    Nothing of it stays.
    """
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    prepared = {}
    for number, (what, each) in enumerate(asked.items()):
        noting = Noting()
        await each.ask(to(noting))
        prepared[what] = Prepared(connection, f"asked_{number}", noting)
        await prepared[what].plan()
    await grow()
    kept = {what: await each.explain() for what, each in prepared.items()}
    await connection.execute("ANALYZE")
    for statement in prepared.values():
        await statement.plan_anew()
    found = [kept, {what: await each.explain() for what, each in prepared.items()}]
    await transaction.rollback()
    await connection.execute("DEALLOCATE ALL")
    return found


def offences(plans: Mapping[str, Plan], asked: Mapping[str, Asked[T]]) -> list[str]:
    """Tell which read a table that grows, or sort it, or touch more than they must."""
    found = [f"{what}: {told}" for what, plan in plans.items() for told in dear(plan)]
    for what, plan in plans.items():
        if (touched := blocks(plan)) > asked[what].blocks_max:
            found.append(f"{what}: {touched} blocks, and {asked[what].blocks_max} are enough")
    return found


def dear(plan: Plan) -> Iterable[str]:
    """Tell of each step that costs more the more rows there are."""
    for node in nodes(plan):
        if is_dear(node):
            yield f"{node['Node Type']} {node.get('Relation Name', '')} {node['Actual Rows']} rows"


def nodes(plan: Plan) -> Iterator[Plan]:
    yield {key: value for key, value in plan.items() if key != "Plans"}
    for below in plan.get("Plans", []):
        yield from nodes(below)


def is_dear(node: Plan) -> bool:
    if not node["Actual Loops"]:
        return False
    if node["Node Type"] == "Seq Scan":
        return bool(node["Relation Name"] in GROWING)
    # A bitmap of one row is a look into an index as any other.
    by_all = "Sort" in node["Node Type"] or node["Node Type"].startswith("Bitmap")
    return bool(by_all and node["Actual Rows"] > ROWS / 20)


def blocks(plan: Plan) -> int:
    """Return how many were touched."""
    # What nobody reads from runs at the end, and is in no sum.
    apart = [each for each in plan.get("Plans", []) if each["Node Type"] == "ModifyTable"]
    return sum(int(each["Shared Hit Blocks"] + each["Shared Read Blocks"]) for each in (plan, *apart))


def literal(value: Any) -> str:
    """Return a value as a statement has it."""
    if value is None:
        return "NULL"
    if isinstance(value, (list, tuple, frozenset)):
        value = "{" + ",".join("NULL" if each is None else json.dumps(str(each)) for each in value) + "}"
    return "'" + str(value).replace("'", "''") + "'"
