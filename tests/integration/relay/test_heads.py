"""What a claim of deliveries looks at: nothing that others are to run, and of each handler its share (R4, R13)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import uuid4

import attrs
import pytest

from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.outbox.sql import at_home
from outbox_kernel.infrastructure.relay import deliveries
from outbox_kernel.infrastructure.relay.deliveries import Deliveries
from outbox_kernel.infrastructure.relay.log import Log
from tests.relaying import Recorder, Stage, carrying, handler

# Events of as many aggregates, each waiting for a handler.
WAITING = """
WITH event AS (
  INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
                             payload, occurred_at)
  SELECT gen_random_uuid(), $3, 1, 'bank.wallet', gen_random_uuid(), 1,
         jsonb_build_object('what', $1 || n), clock_timestamp() FROM generate_series(1, $2) AS n
  RETURNING event_id, position, aggregate_id
)
INSERT INTO outbox_deliveries (event_id, position, handler, order_key)
SELECT event_id, position, $1, 'bank.wallet:' || aggregate_id FROM event
"""


async def wait_for(stage: Stage, name: str, count: int, event_type: str = "bank.noted") -> None:
    await stage.witness.execute(WAITING, name, count, event_type)


async def look(
    log: Log, *names: str, after: dict[str, str] | None = None, known: list[tuple[str, str]] | None = None
) -> tuple[list[Any], Any]:
    """What a relay that carries these takes, and the report of that."""
    claim = Deliveries(log, carrying(*names))._claim  # noqa: SLF001 - nobody else shows the report
    rows, scan = await claim(after or {}, known or [], suspects=False)
    return rows, scan


def names_of(rows: list[Any]) -> list[str]:
    return sorted(row.handler for row in rows)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim looks at ten heads, and takes one delivery of each."""
    monkeypatch.setattr(deliveries, "HEADS_MAX", 10)
    monkeypatch.setattr(deliveries, "TURNS_MAX", 10)
    monkeypatch.setattr(deliveries, "TURN_MAX", 1)


@pytest.mark.usefixtures("few")
async def test_what_others_are_to_run_is_not_even_looked_at(stage: Stage) -> None:
    """R4, R13: however much waits for a publisher that is paused, or for a handler that nobody carries."""
    await wait_for(stage, "others", 30)
    await wait_for(stage, "h", 2)
    rows, scan = await look(await stage.log(), "h")
    assert (names_of(rows), scan["seen"]) == (["h", "h"], 2)


@pytest.mark.usefixtures("few")
async def test_each_handler_has_its_share_of_a_claim(stage: Stage) -> None:
    """R4: one with much to do comes after the first of the others."""
    await wait_for(stage, "busy", 30)
    await wait_for(stage, "h", 2)
    rows, scan = await look(await stage.log(), "busy", "h")
    assert (names_of(rows), scan["seen"]) == (["busy"] * 8 + ["h"] * 2, 10)


@pytest.mark.usefixtures("few")
async def test_a_claim_goes_on_where_the_last_one_ended(stage: Stage) -> None:
    """R4: for each handler at its own place; one that has come to its end is not looked at again."""
    await wait_for(stage, "busy", 12)
    await wait_for(stage, "h", 2)
    log = await stage.log()
    _, first = await look(log, "busy", "h")
    assert set(first["last"]) == {"busy", "h"}
    rows, second = await look(log, "busy", "h", after=first["last"])
    assert (names_of(rows), second["seen"], set(second["last"])) == (["busy"] * 4, 4, {"busy"})


async def test_a_relay_that_can_run_nothing_looks_at_nothing(stage: Stage) -> None:
    """R9."""
    await wait_for(stage, "others", 2)
    rows, scan = await look(await stage.log())
    assert (rows, scan["seen"], scan["last"]) == ([], 0, {})


async def test_all_heads_are_looked_at_before_a_relay_rests(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4: a few at a time."""
    monkeypatch.setattr(deliveries, "HEADS_MAX", 3)
    seen = Recorder()
    both = handler("h", seen), handler("busy", seen)
    await stage.drain(handler("other", seen))
    await wait_for(stage, "busy", 10)
    await wait_for(stage, "h", 4)
    await stage.witness.execute("UPDATE outbox_deliveries SET status = 'dead' WHERE position % 3 = 0")
    await stage.drain(*both, from_beginning=False)
    assert len(seen.seen) == 14 - 4


@asynccontextmanager
async def much_that_is_settled(stage: Stage, name: str, count: int) -> AsyncIterator[None]:
    """What nobody can clean up, since somebody's snapshot is older."""
    async with stage.engine.connect() as connection:
        old: Any = (await connection.get_raw_connection()).driver_connection
        await old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM outbox_deliveries")
        await wait_for(stage, name, count, "bank.of_others")
        await stage.witness.execute("UPDATE outbox_deliveries SET status = 'done' WHERE handler = $1", name)
        await stage.witness.execute("VACUUM outbox_deliveries")
        yield
        await old.execute("COMMIT")


async def test_what_is_unsettled_is_found_where_much_has_not_been_cleaned_up(stage: Stage) -> None:
    """R4, R13: without a look at all that was settled under somebody's long snapshot."""
    seen: Any = Recorder().fail("a")
    wallet = uuid4()
    await stage.put("a", of=wallet)
    await stage.drain(handler("h", seen))
    async with much_that_is_settled(stage, "others", 6_000):
        assert await stage.witness.fetchval(
            "SELECT pg_stat_get_dead_tuples('outbox_deliveries'::regclass) > 5000"
        )
        await stage.put("b", of=wallet)
        await stage.put("c", of=uuid4())
        await stage.drain(handler("h", seen))
    assert seen.seen == ["a", "c"]
    assert (await stage.delivery("b", "h"))["status"] == "waiting"


class Explaining:
    """A relay's line that says what the server has read."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.blocks = 0

    async def fetch_as(self, _record: type, sql: str, *values: object) -> list[dict[str, str]]:
        """Run it, and give an empty report."""
        told = await self._stage.witness.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {at_home(sql, None)}", *values
        )
        [found] = json.loads(told)
        self.blocks = found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"]
        return [{"report": '{"held": true}'}]


@pytest.mark.servers
async def test_a_known_turn_costs_the_same_where_much_has_not_been_cleaned_up(stage: Stage) -> None:
    """R13: only a look at all turns goes over what was settled under somebody's long snapshot."""
    explaining = Explaining(stage)
    log = attrs.evolve(await stage.log(), line=cast("Line", explaining))
    async with much_that_is_settled(stage, "h", 6_000):
        await wait_for(stage, "h", 1)
        [key] = await stage.witness.fetchrow("SELECT order_key FROM outbox_deliveries WHERE NOT settled")
        await look(log, "h")
        over_all = explaining.blocks
        await stage.witness.execute("UPDATE outbox_deliveries SET status = 'waiting' WHERE NOT settled")
        await look(log, "h", known=[("h", key)])
    assert over_all > 6_000
    assert explaining.blocks < 100


async def test_a_known_turn_is_taken_with_what_follows_it_and_nothing_else(stage: Stage) -> None:
    """R4: whatever else there is to do."""
    wallet = uuid4()
    await stage.put("a", "b", of=wallet)
    await stage.put("other", of=uuid4())
    await stage.witness.execute(WAIT)
    assert await known(stage, f"bank.wallet:{wallet}") == ["a", "b"]


async def test_a_known_turn_waits_for_what_comes_before_it(stage: Stage) -> None:
    """R4: that something was heard of it does not make it its turn."""
    wallet = uuid4()
    await stage.put("a", "b", of=wallet)
    await stage.witness.execute(WAIT)
    await stage.witness.execute(
        "UPDATE outbox_deliveries SET status = 'dead' WHERE position = (SELECT min(position) FROM outbox_deliveries)"
    )
    assert await known(stage, f"bank.wallet:{wallet}") == []


# As if every handler had been too slow at first.
WAIT = """
INSERT INTO outbox_deliveries (event_id, position, handler, order_key)
SELECT event_id, position, 'h', aggregate_type || ':' || aggregate_id FROM outbox_events ORDER BY position
"""


async def known(stage: Stage, key: str) -> list[str]:
    """What a relay takes that has heard of a turn."""
    rows, _ = await look(await stage.log(), "h", known=[("h", key)])
    return [json.loads(row.payload)["what"] for row in rows]
