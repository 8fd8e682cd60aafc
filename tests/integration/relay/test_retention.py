"""What was delivered long ago goes by itself, a window at a time; all else stays (R13)."""

from __future__ import annotations

from typing import Any

import pytest

from outbox_kernel.infrastructure.relay import retention
from outbox_kernel.infrastructure.relay.line import Line
from outbox_kernel.infrastructure.relay.retention import Retention
from outbox_kernel.infrastructure.relay.store import Store
from tests.relaying import Recorder, Stage, handler
from tests.serving import serving
from tests.waiting import until

AGE = "UPDATE {} SET {} = {} - interval '8 days'"


async def old_events(stage: Stage, *whats: str) -> None:
    """Deliver these, each with its effect, a week and a day ago."""

    async def act(event: Any) -> None:
        await stage.enter(event.what)

    await stage.put(*whats)
    await stage.drain(handler("h", act))
    for table, column in (
        ("outbox_events", "created_at"),
        ("outbox_events", "processed_at"),
        ("outbox_receipts", "created_at"),
    ):
        await stage.witness.execute(AGE.format(table, column, column))


async def test_what_was_delivered_long_ago_goes_with_its_receipts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R13: windows of a step are few, so that a purge takes its time; the next step goes on where it ended."""
    monkeypatch.setattr(retention, "WINDOW_ROWS", 2)
    monkeypatch.setattr(retention, "WINDOWS_MAX", 2)
    await old_events(stage, "a", "b", "c", "d", "e")
    await stage.put("new")
    keeper = Retention(Store(), 7.0)
    assert await keeper.step(stage.line())
    assert list(await stage.events()) == ["e", "new"]
    assert not await keeper.step(stage.line())
    assert list(await stage.events()) == ["new"]
    assert (keeper.purged, await stage.receipts()) == (5, [])


async def test_history_is_kept_for_ever_where_nothing_is_to_go(stage: Stage) -> None:
    """R13: `OUTBOX_CLEANUP_DAYS=never`."""
    await old_events(stage, "a")
    await Retention(Store(), None).step(stage.line())
    assert list(await stage.events()) == ["a"]


async def test_what_is_not_delivered_stays_however_old_it_is(stage: Stage) -> None:
    """R13, R7: a dead letter, too."""
    await stage.put("dead", "waiting")
    await stage.drain(handler("h", Recorder().fail("dead").fail("waiting")), retries_max=1)
    await stage.witness.execute("UPDATE outbox_events SET status = 'open' WHERE payload->>'what' = 'waiting'")
    for column in ("created_at", "processed_at"):
        await stage.witness.execute(AGE.format("outbox_events", column, column))
    await Retention(Store(), 7.0).step(stage.line())
    assert await stage.events() == {"dead": "dead", "waiting": "open"}


async def test_a_receipt_outlives_an_event_that_goes_sooner(stage: Stage) -> None:
    """R13: a relay that was stopped must still find it."""
    await old_events(stage, "a")
    await stage.witness.execute("UPDATE outbox_receipts SET created_at = now()")
    await Retention(Store(), 0.0).step(stage.line())
    assert await stage.events() == {}
    assert await stage.witness.fetchval("SELECT count(*) FROM outbox_receipts") == 1
    await stage.witness.execute(AGE.format("outbox_receipts", "created_at", "created_at"))
    await Retention(Store(), 0.0).step(stage.line())
    assert await stage.witness.fetchval("SELECT count(*) FROM outbox_receipts") == 0


async def test_where_nothing_is_old_it_rests(stage: Stage) -> None:
    """R13."""
    keeper = Retention(Store(), 7.0)
    await keeper.step(stage.line())
    await old_events(stage, "a")
    await keeper.step(stage.line())
    assert list(await stage.events()) == ["a"]


async def test_a_serving_relay_purges(stage: Stage) -> None:
    """R13: with nobody who asks it to."""
    await old_events(stage, "a")

    async def is_gone() -> bool:
        return await stage.events() == {}

    async with serving(stage.relay(at=None, poll_interval_seconds=0.05)):
        await until(is_gone)


async def test_it_purges_as_fast_as_events_come(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """R13: while there is more that is old, a relay does not wait for its next maintenance."""
    monkeypatch.setattr(retention, "WINDOW_ROWS", 1)
    monkeypatch.setattr(retention, "WINDOWS_MAX", 1)
    await old_events(stage, *(f"e{n}" for n in range(20)))

    async def are_gone() -> bool:
        return await stage.events() == {}

    async with serving(stage.relay(at=None, poll_interval_seconds=3600)):
        await until(are_gone)


async def test_it_purges_no_longer_than_until_the_next_maintenance(stage: Stage) -> None:
    """R3, R13: however much there is, the other chores have their time."""
    steps: list[int] = []

    class Endless(Retention):
        async def step(self, line: Line) -> bool:
            steps.append(1)
            return True

    relay = stage.relay(at=None, poll_interval_seconds=0.05)
    upkeep = relay._upkeep(await relay._start())  # noqa: SLF001 - what it does every poll interval
    upkeep.retention = Endless(Store(), 7.0)
    await upkeep.step()
    assert steps
