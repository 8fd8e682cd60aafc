"""Events that are committed now and handled from a moment on, outside their aggregate's order (K13)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.brokers.memory import MemoryBroker
from outbox_kernel.infrastructure.operations import Desk
from outbox_kernel.infrastructure.operations.health_of_work import examine_work
from outbox_kernel.infrastructure.operations.mending import choose_for_retry, choose_for_skip, retry, skip
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.operations.replaying import replay
from outbox_kernel.infrastructure.operations.selection import Selection
from outbox_kernel.infrastructure.operations.stories import events, show
from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.kernel import Reject
from tests.domain import Announced, Noted, Opened, Paid, Wallet
from tests.posting import BANK, TOPOLOGY, told
from tests.relaying import Recorder, Stage, handler
from tests.serving import all_delivered, serving
from tests.waiting import until


async def test_it_is_handled_from_its_moment_on_and_not_before(stage: Stage) -> None:
    seen = Recorder()
    await stage.put("a", not_before=stage.at(100))
    for at, runs in ((0, 0), (99, 0), (100, 1), (200, 1)):
        await stage.drain(handler("h", seen), at=at)
        assert (at, len(seen.seen)) == (at, runs)
    assert await stage.events() == {"a": "delivered"}


async def test_a_moment_that_has_passed_is_at_once(stage: Stage) -> None:
    seen = Recorder()
    await stage.put("a", not_before=stage.at(-100))
    await stage.drain(handler("h", seen))
    assert seen.seen == ["a"]


async def test_nobody_waits_for_it(stage: Stage) -> None:
    """Those after it in its aggregate are handled at once, and it when its time has come."""
    seen, wallet = Recorder(), uuid4()
    await stage.put("later", of=wallet, not_before=stage.at(100))
    await stage.put("a", "b", of=wallet)
    await stage.drain(handler("h", seen))
    await stage.put("c", of=wallet)
    await stage.drain(handler("h", seen), at=50)
    assert seen.seen == ["a", "b", "c"]
    await stage.drain(handler("h", seen), at=100)
    assert seen.seen == ["a", "b", "c", "later"]
    assert set((await stage.events()).values()) == {"delivered"}


async def test_it_waits_for_nobody(stage: Stage) -> None:
    """Not for an earlier event of its aggregate that is dead, and not for one that failed."""
    seen, wallet = Recorder().fail("a", Reject("never")), uuid4()
    await stage.put("a", of=wallet)
    await stage.put("later", of=wallet, not_before=stage.at(100))
    await stage.put("b", of=wallet)
    for at in (0, 100):
        await stage.drain(handler("h", seen), at=at)
    assert seen.seen == ["a", "later"]
    assert await stage.events() == {"a": "dead", "later": "delivered", "b": "open"}


async def test_it_fails_and_dies_without_holding_anybody_back(stage: Stage) -> None:
    seen, wallet = Recorder().fail("later", ValueError("once"), Reject("never")), uuid4()
    await stage.put("later", of=wallet, not_before=stage.at(100))
    for at in (0, 100, 110):
        await stage.drain(handler("h", seen), at=at)
    await stage.put("a", of=wallet)
    await stage.drain(handler("h", seen), at=110)
    assert seen.seen == ["later", "later", "a"]
    assert await stage.events() == {"later": "dead", "a": "delivered"}


async def test_one_that_another_relay_has_claimed_blocks_nobody(stage: Stage) -> None:
    """R4: a relay that vanishes with it in hand holds up no other event of its aggregate."""
    seen, wallet = Recorder(), uuid4()
    await stage.drain(handler("h", seen))
    await stage.put("later", of=wallet, not_before=stage.at(100))
    await stage.claimer_that_vanishes()
    await stage.put("a", of=wallet)
    await stage.drain(handler("h", seen))
    assert seen.seen == ["a"]
    await stage.take_over(at=60)
    for at in (60, 100):
        await stage.drain(handler("h", seen), at=at)
    assert seen.seen == ["a", "later"]


async def test_it_is_claimed_while_another_relay_has_an_earlier_event(stage: Stage) -> None:
    """R4: and what is in order waits, with this one between them as well."""
    seen, wallet = Recorder(), uuid4()
    await stage.drain(handler("h", seen))
    await stage.put("a", of=wallet)
    await stage.claimer_that_vanishes()
    await stage.put("later", of=wallet, not_before=stage.at(0))
    await stage.put("b", of=wallet)
    await stage.drain(handler("h", seen))
    assert seen.seen == ["later"]
    await stage.take_over(at=60)
    await stage.drain(handler("h", seen), at=60)
    assert seen.seen == ["later", "a", "b"]


async def test_it_wakes_the_relay_when_its_moment_has_come(stage: Stage) -> None:
    """With no event and no poll to remind it."""
    seen = Recorder()
    soon = await stage.witness.fetchval("SELECT clock_timestamp()") + timedelta(seconds=0.3)
    await stage.put("a", not_before=soon)
    async with serving(stage.relay(handler("h", seen), at=None, poll_interval_seconds=3600)):
        await until(all_delivered(stage, 1))
    [moment] = await stage.witness.fetchrow("SELECT processed_at FROM outbox_events")
    assert seen.seen == ["a"]
    assert moment >= soon


async def test_it_is_published_from_its_moment_on(stage: Stage) -> None:
    broker, wallet = MemoryBroker(), uuid4()

    async def publish(at: float) -> list[str]:
        outlet = broker.outlet(BANK, TOPOLOGY)
        relay = OutboxRelay(
            stage.engine, stage.container, handlers=[], publishers={BANK: outlet}, now=stage.at(at)
        )
        stage.relays.append(relay)
        await relay.run_until_idle()
        return told(broker)

    await stage.put("later", of=wallet, not_before=stage.at(100))
    await stage.put("a", of=wallet)
    assert await publish(0) == ["a"]
    assert await publish(100) == ["a", "later"]


async def test_what_aggregates_record_and_units_of_work_emit_keeps_its_number(stage: Stage) -> None:
    """K2: committed now, numbered as it was recorded."""
    wallet = Wallet.open()
    async with stage.uow() as uow:
        uow.repository(Wallet).add(wallet)
        wallet.record(Noted("later"), not_before=stage.at(100))
        wallet.pay(5)
        uow.emit(Announced("told later"), not_before=stage.at(200))
        await uow.commit()
    seen: list[tuple[str, Any]] = []

    async def note(event: Any) -> None:
        seen.append((event.what, event.aggregate_version))

    h = handler("h", note, Opened, Noted, Paid, Announced)
    await stage.drain(h)
    assert seen == [("ada", 1), ("5", 3)]
    await stage.drain(h, at=100)
    await stage.drain(h, at=200)
    assert seen[2:] == [("later", 2), ("told later", None)]


async def test_it_is_shown_with_its_moment_and_alarms_nobody_before(stage: Stage) -> None:
    """O1."""
    desk = Desk(stage.witness)
    await stage.put("a", not_before=stage.at(7200))
    await stage.relay(handler("h", Recorder())).run_once()
    [row] = await events(desk)
    assert row["not_before"] == stage.at(7200)
    [delivery] = (await show(desk, row["event_id"]))["deliveries"]
    assert delivery["waits_for"] == f"its time, {stage.at(7200):%Y-%m-%d %H:%M:%S} UTC"
    found = {each.check: each for each in await examine_work(desk, await overview(desk))}
    assert found["oldest event"].detail == "nothing is undelivered"


@pytest.mark.parametrize("ordered", [True, False])
async def test_an_operator_does_not_bring_it_forward(stage: Stage, ordered: bool) -> None:
    """O1: what is skipped and retried, or replayed for a handler that is new, keeps its moment."""
    seen, wallet, desk = Recorder(), uuid4(), Desk(stage.witness)
    h = handler("h", seen, ordered=ordered)
    await stage.put("later", of=wallet, not_before=stage.at(100))
    await stage.drain(h)
    event_id = (await stage.event("later"))["event_id"]
    await skip(desk, await choose_for_skip(desk, Selection(event_id=event_id)))
    await retry(desk, await choose_for_retry(desk, Selection(event_id=event_id)))
    await stage.drain(h, at=50)
    assert seen.seen == []
    late = handler("late", Recorder(), ordered=ordered)
    await stage.drain(late, at=50)
    await replay(desk, "late", stage.at(-9999))
    await stage.drain(h, late, at=50)
    keys = await stage.witness.fetch("SELECT DISTINCT order_key, available_at FROM outbox_deliveries")
    assert [tuple(each) for each in keys] == [(str(event_id), stage.at(100))]
    await stage.drain(h, late, at=100)
    assert seen.seen == ["later"]
    assert await stage.events() == {"later": "delivered"}
