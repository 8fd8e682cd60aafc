"""Rows that cannot be read, since they were written past us: dead for whom they are due, and nobody notices (R9)."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.brokers.memory import MemoryBroker
from outbox_kernel.infrastructure.relay.relay import OutboxRelay
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.posting import BANK, TOPOLOGY, told
from tests.relaying import Recorder, Stage, handler

SPOILED = {
    "before the year 1": "occurred_at = '0001-01-01 00:00:00+00'::timestamptz - interval '1 microsecond'",
    "after 9999": "occurred_at = '10000-01-01 00:00:00+00'",
    "at the end of all times": "occurred_at = 'infinity'",
    "before all times": "occurred_at = '-infinity'",
    "due at the end of all times": "not_before = 'infinity'",
    "due before all times": "not_before = '-infinity'",
    "an array for a payload": "payload = '[1]'",
    "a word for a payload": "payload = '\"what\"'",
    "null for a payload": "payload = 'null'",
    "an array for headers": "headers = '[{}]'",
}
READABLE = {
    "the first moment": "occurred_at = '0001-01-01 00:00:00+00'",
    "the last moment": "occurred_at = '9999-12-31 23:59:59.999999+00', created_at = occurred_at",
    "due since the first moment": "not_before = '0001-01-01 00:00:00+00'",
}


async def spoil(stage: Stage, what: str, how: str) -> Any:
    """Write to a row what no event of ours has; return the event's id."""
    event_id = (await stage.event(what))["event_id"]
    await stage.witness.execute(f"UPDATE outbox_events SET {how} WHERE event_id = $1", event_id)
    return event_id


async def deaths(stage: Stage) -> dict[tuple[Any, str], tuple[str, int]]:
    """Status and attempts of each delivery, by event and handler."""
    rows = await stage.witness.fetch("SELECT event_id, handler, status, attempts FROM outbox_deliveries")
    return {(row["event_id"], row["handler"]): (row["status"], row["attempts"]) for row in rows}


@pytest.mark.parametrize("how", SPOILED.values(), ids=SPOILED)
async def test_what_cannot_be_read_is_dead_at_once_for_each_and_nobody_else_notices(
    stage: Stage, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen, other = Recorder(), Recorder()
    for what in "abc":
        await stage.put(what, of=uuid4())
    event_id = await spoil(stage, "b", how)
    await stage.drain(handler("h", seen), handler("i", other))
    assert seen.seen == other.seen == ["a", "c"]
    assert await deaths(stage) == {(event_id, "h"): ("dead", 1), (event_id, "i"): ("dead", 1)}
    critical = [each for each in caplog.records if each.levelno == logging.CRITICAL]
    assert [each.__dict__["handler"] for each in critical] == ["h", "i"]
    assert f"handler h is dead for event bank.noted {event_id}: it cannot be read" in critical[0].getMessage()


@pytest.mark.parametrize("how", READABLE.values(), ids=READABLE)
async def test_the_first_and_the_last_moment_that_there_is_can_be_read(stage: Stage, how: str) -> None:
    seen = Recorder()
    await stage.put("a", of=uuid4())
    await spoil(stage, "a", how)
    await stage.drain(handler("h", seen))
    assert seen.seen == ["a"]


@pytest.mark.parametrize(
    "how", ["payload = '[1]'", "occurred_at = 'infinity'", "not_before = 'infinity'", "headers = '[]'"]
)
async def test_what_became_unreadable_while_it_waited_is_dead_at_its_turn(stage: Stage, how: str) -> None:
    """As a delivery, too: and what waits behind it in its aggregate, for that handler alone, waits on."""
    seen, good, wallet = Recorder().fail("a"), Recorder(), uuid4()
    every = handler("h", seen), handler("good", good)
    await stage.put("a", "b", of=wallet)
    await stage.drain(*every)
    event_id = await spoil(stage, "a", how)
    await stage.put("c", of=uuid4())
    await stage.drain(*every, at=10)
    assert (seen.seen, good.seen) == (["a", "c"], ["a", "b", "c"])
    later = (await stage.event("b"))["event_id"]
    assert await deaths(stage) == {(event_id, "h"): ("dead", 2), (later, "h"): ("waiting", 0)}


async def test_it_parks_its_aggregate_or_lets_it_pass_as_any_dead_letter(stage: Stage) -> None:
    """R7."""
    parked, passing, wallet = Recorder(), Recorder(), uuid4()
    await stage.put("a", "b", of=wallet)
    event_id = await spoil(stage, "a", "payload = '[1]'")
    await stage.drain(handler("parked", parked), handler("passing", passing, on_dead="continue"))
    assert (parked.seen, passing.seen) == ([], ["b"])
    receipts = await stage.witness.fetch("SELECT event_id, handler, outcome FROM outbox_receipts")
    assert [tuple(row) for row in receipts] == [(event_id, "passing", "skipped")]


async def test_one_that_was_to_be_handled_from_a_moment_on_holds_back_nobody(stage: Stage) -> None:
    """K13: it is outside its aggregate's order, whatever its moment has become."""
    seen, wallet = Recorder(), uuid4()
    await stage.put("later", of=wallet, not_before=stage.start + timedelta(seconds=100))
    await stage.put("a", of=wallet)
    await spoil(stage, "later", "not_before = 'infinity'")
    await stage.drain(handler("h", seen))
    assert seen.seen == ["a"]
    assert await stage.events() == {"later": "dead", "a": "delivered"}


async def test_once_mended_it_is_retried_as_any_dead_letter(stage: Stage) -> None:
    seen, wallet = Recorder(), uuid4()
    await stage.put("a", "b", of=wallet)
    event_id = await spoil(stage, "a", "payload = '[1]'")
    await stage.drain(handler("h", seen))
    await stage.witness.execute(
        'UPDATE outbox_events SET payload = \'{"what": "a"}\' WHERE event_id = $1', event_id
    )
    await stage.witness.execute(
        "UPDATE outbox_deliveries SET status = 'waiting' WHERE event_id = $1", event_id
    )
    await stage.drain(handler("h", seen))
    assert seen.seen == ["a", "b"]


async def test_it_is_dead_for_a_publisher_too(stage: Stage) -> None:
    broker = MemoryBroker()
    relay = OutboxRelay(
        stage.engine,
        stage.container,
        handlers=[],
        publishers={BANK: broker.outlet(BANK, TOPOLOGY)},
        now=stage.at(0),
    )
    stage.relays.append(relay)
    await relay.run_once()
    await stage.put("a", "b")
    event_id = await spoil(stage, "a", "payload = '[1]'")
    await relay.run_until_idle()
    assert told(broker) == ["b"]
    assert await deaths(stage) == {(event_id, "bank"): ("dead", 1)}


async def test_of_a_type_that_nobody_knows_it_is_dead_as_well(stage: Stage) -> None:
    """Nobody could ever run it, whatever code there is."""
    await stage.put("a", event_type="shop.unheard_of")
    event_id = await spoil(stage, "a", "payload = '[1]'")

    async def note(event: Any) -> None:
        raise AssertionError(event)

    await stage.drain(HandlerRegistration("h", note, (), patterns=("shop.*",)))
    assert await deaths(stage) == {(event_id, "h"): ("dead", 1)}
