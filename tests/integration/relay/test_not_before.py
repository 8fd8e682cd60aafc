"""Events that are committed now and handled from a moment on, outside their aggregate's order (K13)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from outbox_kernel.infrastructure.brokers.memory import MemoryBroker
from outbox_kernel.infrastructure.relay.relay import OutboxRelay
from outbox_kernel.kernel import Reject
from tests.domain import Announced, Noted, Opened, Paid, Wallet
from tests.posting import BANK, TOPOLOGY, told
from tests.relaying import Recorder, Stage, handler
from tests.serving import has_run, serving
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


async def test_it_wakes_the_relay_when_its_moment_has_come(stage: Stage) -> None:
    """With no event and no poll to remind it."""
    seen = Recorder()
    soon = await stage.witness.fetchval("SELECT clock_timestamp()") + timedelta(seconds=0.3)
    await stage.put("a", not_before=soon)
    async with serving(stage.relay(handler("h", seen), at=None, poll_interval_seconds=3600)):
        await until(lambda: has_run(seen, 1))
    moment = (await stage.status("a"))["processed_at"]
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

    await publish(0)
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
