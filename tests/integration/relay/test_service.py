"""The service as a whole: it wakes, delivers, and shares its outbox (R1, R3, R4, R7)."""

from __future__ import annotations

import asyncio
import gc
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox_kernel.infrastructure.outbox.delivery import Outcome
from outbox_kernel.infrastructure.outbox.sql.fragments import SHARDS
from outbox_kernel.infrastructure.relay import timeouts
from outbox_kernel.infrastructure.relay.shift import Shift
from outbox_kernel.kernel import RetrySchedule
from tests.domain import Announced
from tests.relaying import Recorder, Stage, handler
from tests.serving import (
    RELAYS,
    STEP,
    all_delivered,
    at_the_gate,
    has_run,
    has_seen,
    serving,
)
from tests.waiting import until


async def test_it_delivers_what_is_committed_while_it_runs(stage: Stage) -> None:
    """R1: by polling alone, too."""
    seen = Recorder()
    async with serving(stage.relay(handler("h", seen), at=None, poll_interval_seconds=0.05)):
        for n in range(5):
            await stage.put(f"e{n}", of=uuid4())
            await until(all_delivered(stage, n + 1))
    assert seen.seen == [f"e{n}" for n in range(5)]


async def test_it_tries_again_when_the_time_has_come(stage: Stage) -> None:
    """R7: with no event and no poll to remind it."""
    seen = Recorder().fail("a", times=2)
    h = handler("h", seen, retry=RetrySchedule((0.05,)))
    await stage.put("a")
    async with serving(stage.relay(h, at=None, poll_interval_seconds=3600)):
        await until(lambda: has_run(seen, 3))
        await until(all_delivered(stage, 1))
    assert seen.seen == ["a", "a", "a"]


async def test_it_keeps_nothing_of_what_it_has_settled(stage: Stage) -> None:
    """R7: it may serve for months."""
    seen = Recorder().fail("a", times=2)

    def outcomes() -> list[Outcome]:
        gc.collect()
        return [each for each in gc.get_objects() if isinstance(each, Outcome)]

    # Of other tests' relays.
    before = outcomes()

    async def is_forgotten() -> bool:
        return all(any(each is old for old in before) for each in outcomes())

    await stage.put("a")
    h = handler("h", seen, retry=RetrySchedule((0.01,)))
    async with serving(stage.relay(h, at=None, poll_interval_seconds=0.05)):
        await until(all_delivered(stage, 1))
        await until(is_forgotten)


async def test_several_relays_share_one_outbox_in_order(stage: Stage) -> None:
    """R1, R4."""
    wallets = [uuid4() for _ in range(4)]
    seen = Recorder().fail("0-3").fail("1-5")
    h = handler("h", seen, retry=RetrySchedule((0.01,)))
    relays = [
        stage.relay(h, at=None, poll_interval_seconds=0.02, batch_size_max=5, concurrency=2) for _ in range(3)
    ]
    async with serving(relays[0]), serving(relays[1]), serving(relays[2]):
        for n in range(20):
            for number, wallet in enumerate(wallets):
                await stage.put(f"{number}-{n}", of=wallet)
        await until(all_delivered(stage, 80))
    for number in range(4):
        mine = [what for what in seen.seen if what.startswith(f"{number}-")]
        assert list(dict.fromkeys(mine)) == [f"{number}-{n}" for n in range(20)]
    assert len(seen.seen) == 82
    assert await stage.witness.fetchval(RELAYS) == 0


async def test_it_frees_what_another_relay_left_behind(stage: Stage) -> None:
    """R3."""
    seen = Recorder()
    await stage.drain(handler("h", seen))
    await stage.put("a")
    await stage.owner_that_vanishes("h")
    await stage.witness.execute("UPDATE outbox_relays SET expires_at = clock_timestamp()")
    async with serving(stage.relay(handler("h", seen), at=None, poll_interval_seconds=0.05)):
        await until(all_delivered(stage, 1))
    assert seen.seen == ["a"]


async def test_who_takes_over_tells_the_others_what_falls_to_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R1, R3: they need not look by themselves, which they would only much later."""
    heard, hear = [], Shift.hear

    def note(shift: Shift, said: str) -> None:
        heard.append(shift)
        hear(shift, said)

    async def has_looked_around() -> bool:
        shift = waits._shift  # noqa: SLF001 - nobody else can say
        return shift in heard and not (shift.to_balance.is_set() or shift.lines.control._turn.locked())  # noqa: SLF001 - as above

    monkeypatch.setattr(Shift, "hear", note)
    first, second, wallets = Recorder(), Recorder(), [UUID(int=shard) for shard in range(SHARDS)]
    await stage.drain(handler("h", Recorder()))
    await stage.owner_that_vanishes("h")
    for wallet in wallets:
        await stage.put(f"of {wallet.int}", of=wallet)
    waits = stage.relay(handler("h", first), at=None, poll_interval_seconds=3600, lease_seconds=3600)
    looks = stage.relay(handler("h", second), at=None, poll_interval_seconds=0.05)
    async with serving(waits), serving(looks):
        await looks.subscribed.wait()
        await until(has_looked_around)
        await stage.witness.execute(
            "UPDATE outbox_relays SET expires_at = clock_timestamp() WHERE host = 'here'"
        )
        await until(all_delivered(stage, SHARDS))
    assert len(first.seen) == len(second.seen) == SHARDS / 2


async def test_a_slow_handler_delays_no_other_aggregate_and_no_other_handler(stage: Stage) -> None:
    """R4: it runs as long as it may, and the rest is delivered meanwhile."""
    h, go, begun, seen = at_the_gate()
    good, wallet = Recorder(), uuid4()
    await stage.put("a", "b", of=wallet)
    async with serving(
        stage.relay(h, handler("z", good), at=None, poll_interval_seconds=0.05, concurrency=2)
    ):
        await begun.wait()
        await until(lambda: has_seen(good, {"a", "b"}))
        assert seen == ["a"]
        go.set()
        await until(all_delivered(stage, 2))
    assert seen == ["a", "b"]


async def test_handlers_that_hang_as_deliveries_delay_no_other_handler(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4: however many, what is slow does not count as what the crew is busy with."""
    monkeypatch.setattr(timeouts, "SLOW_SECONDS", STEP)
    go, quick, hanging = asyncio.Event(), Recorder(), Recorder()

    async def hang(event: Any) -> None:
        await hanging(event)
        await go.wait()

    hanging.fail("a", times=3)
    names = ["h1", "h2", "h3"]
    slow = [handler(name, hang, retry=RetrySchedule((0.0,))) for name in names]
    await stage.put("a", of=uuid4())
    relay = stage.relay(
        *slow,
        handler("quick", quick, Announced),
        at=None,
        poll_interval_seconds=0.05,
        concurrency=1,
        batch_size_max=1,
    )
    async with serving(relay):
        await until(lambda: has_run(hanging, 6))
        await stage.put("q", event_type="bank.announced")
        await until(lambda: has_seen(quick, {"q"}))
        go.set()
        await until(all_delivered(stage, 2))
