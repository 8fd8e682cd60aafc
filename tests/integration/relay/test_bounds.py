"""Bounds of one handler hold over all relays of a fleet, and cost nobody else anything (R16)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import attrs
import pytest

from outbox_kernel.infrastructure.relay import OutboxRelay, timeouts
from outbox_kernel.kernel import RetrySchedule
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.relaying import Recorder, Stage, handler
from tests.serving import all_delivered, has_seen, serving
from tests.waiting import until


@attrs.define(eq=False)
class Counter(Recorder):
    """Counts who is at work at once, in whichever relay."""

    go: asyncio.Event = attrs.Factory(asyncio.Event)
    at_work: int = 0
    most: int = 0
    began: list[float] = attrs.Factory(list)

    async def __call__(self, event: Any) -> None:
        self.began.append(time.monotonic())
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        try:
            await self.go.wait()
            await asyncio.sleep(0)
            await super().__call__(event)
        finally:
            self.at_work -= 1


def open_counter() -> Counter:
    counter = Counter()
    counter.go.set()
    return counter


@asynccontextmanager
async def fleet(
    stage: Stage, *handlers: HandlerRegistration, size: int = 3
) -> AsyncIterator[list[OutboxRelay]]:
    """Relays that serve, all of them with cursors of what is not bounded."""
    relays = [
        stage.relay(*handlers, at=None, poll_interval_seconds=0.05, lease_seconds=3.0) for _ in range(size)
    ]
    async with AsyncExitStack() as stack:
        for each in relays:
            _ = await stack.enter_async_context(serving(each))
        for each in relays:
            await each.subscribed.wait()
        yield relays


async def put(stage: Stage, count: int, *, each: int = 1, prefix: str = "") -> None:
    """So many aggregates with so many events each."""
    for number in range(count):
        await stage.put(*(f"{prefix}{number} {n}" for n in range(each)), of=uuid4())


def has_begun(counter: Counter, count: int) -> Callable[[], Any]:
    async def holds() -> bool:
        return len(counter.began) >= count

    return holds


# --- concurrency ------------------------------------------------------------------------------------


async def test_no_more_than_its_concurrency_are_at_work_over_all_relays(stage: Stage) -> None:
    counter, other = Counter(), Recorder()
    async with fleet(stage, handler("h", counter, concurrency=2), handler("other", other)):
        await put(stage, 12, each=2)
        await until(has_begun(counter, 2))
        await until(lambda: has_seen(other, {f"{number} 1" for number in range(12)}))
        assert (counter.at_work, counter.seen) == (2, [])
        counter.go.set()
        await until(all_delivered(stage, 24))
    assert counter.most == 2
    assert len(counter.seen) == 24


async def test_slow_runs_take_the_places_of_others(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """R5: what waits for a place waits in hand, without a row."""
    monkeypatch.setattr(timeouts, "SLOW_SECONDS", 0.05)
    counter = Counter()
    async with fleet(stage, handler("h", counter, concurrency=2), size=1) as [relay]:
        await put(stage, 6)
        await until(lambda: are_slow(relay, 2))
        await stage.put("later")
        # Those two may have rows: they are slow, and what was read with them may be just they.
        assert (counter.at_work, {*(await stage.deliveries()).values()} <= {"leased"}) == (2, True)
        counter.go.set()
        await until(all_delivered(stage, 7))
    assert (counter.most, len(counter.seen)) == (2, 7)


async def are_slow(relay: OutboxRelay, count: int) -> bool:
    shift = relay._shift  # noqa: SLF001 - nobody else can say
    return shift is not None and shift.subscribers["h"].workers.slow == count


async def test_deliveries_are_bounded_with_the_rest(stage: Stage) -> None:
    """What has failed is tried again by the relay that has the cursors."""
    counter = open_counter()
    for number in range(10):
        counter.fail(f"{number} 0")
    h = handler("h", counter, concurrency=2, retry=RetrySchedule((0.01,)))
    async with fleet(stage, h):
        await put(stage, 10, each=3)
        await until(all_delivered(stage, 30))
    assert (counter.most, len(counter.seen)) == (2, 40)
    for number in range(10):
        mine = [what for what in counter.seen if what.startswith(f"{number} ")]
        assert mine == [f"{number} 0", f"{number} 0", f"{number} 1", f"{number} 2"]


async def test_a_bound_holds_while_it_changes_hands(stage: Stage) -> None:
    """R1: a relay that comes has about half of the handlers, each as a whole and once the other has ended with it."""
    counters = {f"h{number}": open_counter() for number in range(8)}
    handlers = [handler(name, counter, concurrency=1) for name, counter in counters.items()]
    async with fleet(stage, *handlers, size=1) as [first]:
        await put(stage, 20, each=2, prefix="a")
        async with fleet(stage, *handlers, size=1) as [second]:
            await until(lambda: have_shared_out(stage, list(counters)))
            await put(stage, 20, each=2, prefix="b")
            await until(all_delivered(stage, 80))
        assert first.subscribed.is_set()
        await put(stage, 5, prefix="c")
        await until(all_delivered(stage, 85))
        assert not second.subscribed.is_set()
    for counter in counters.values():
        assert (counter.most, len(set(counter.seen))) == (1, 85)


async def have_shared_out(stage: Stage, names: list[str]) -> bool:
    owners = [await stage.owners(name) for name in names]
    return all(list(each.values()) == [32] and None not in each for each in owners) and (
        len({relay for each in owners for relay in each}) == 2
    )


async def test_a_run_under_way_keeps_it_from_being_given_over(stage: Stage) -> None:
    """Two relays with one run each would be two runs."""
    counters = {f"h{number}": Counter() for number in range(6)}
    handlers = [handler(name, counter, concurrency=1) for name, counter in counters.items()]
    async with fleet(stage, *handlers, size=1):
        await put(stage, 4)
        await until(lambda: are_at_work(counters))
        async with fleet(stage, *handlers, size=1):
            await put(stage, 4, prefix="b")
            assert [counter.most for counter in counters.values()] == [1] * 6
            for counter in counters.values():
                counter.go.set()
            await until(lambda: have_shared_out(stage, list(counters)))
            await until(all_delivered(stage, 8))
    assert [counter.most for counter in counters.values()] == [1] * 6


async def are_at_work(counters: dict[str, Counter]) -> bool:
    return all(counter.at_work for counter in counters.values())


async def test_relays_of_other_code_agree_who_has_it(stage: Stage) -> None:
    """R1: one without the bound, as before it was given, leaves nothing for the other to take that is not taken."""
    counter = open_counter()
    async with (
        fleet(stage, handler("h", counter), size=1),
        fleet(stage, handler("h", counter, concurrency=1), size=2),
    ):
        await put(stage, 40)
        await until(all_delivered(stage, 40))
        await until(lambda: have_shared_out_one(stage))
    assert len(set(counter.seen)) == 40


async def have_shared_out_one(stage: Stage) -> bool:
    return list((await stage.owners("h")).values()) == [32]


# --- rate -------------------------------------------------------------------------------------------


async def test_runs_begin_no_faster_than_the_rate_over_all_relays(stage: Stage) -> None:
    """And nobody else waits for that."""
    counter, other = open_counter(), Recorder()
    async with fleet(stage, handler("h", counter, rate="20/s"), handler("other", other)):
        await put(stage, 12)
        await until(lambda: has_seen(other, {f"{number} 0" for number in range(12)}))
        assert len(counter.seen) < 12
        await until(all_delivered(stage, 12))
    between = [after - before for before, after in zip(counter.began, counter.began[1:], strict=False)]
    assert min(between) >= 0.05 - 0.012
    assert counter.began[-1] - counter.began[0] >= 11 * 0.05 - 0.012


async def test_a_rate_counts_what_is_tried_again(stage: Stage) -> None:
    counter = open_counter()
    counter.fail("0 0", times=3)
    h = handler("h", counter, rate="20/s", retry=RetrySchedule((0,)))
    async with fleet(stage, h, size=2):
        await put(stage, 1, each=2)
        await until(all_delivered(stage, 2))
    assert counter.seen == ["0 0"] * 4 + ["0 1"]
    between = [after - before for before, after in zip(counter.began, counter.began[1:], strict=False)]
    assert min(between) >= 0.05 - 0.012


async def test_what_waits_for_its_rate_is_given_over_at_once_and_has_no_rows(stage: Stage) -> None:
    """R11: a relay that stops, or has to give it to another, waits for no hour."""
    counter = open_counter()
    h = handler("h", counter, rate="1/h")
    async with fleet(stage, h, size=1):
        await put(stage, 5)
        await until(has_begun(counter, 1))
    assert (len(counter.seen), await stage.deliveries()) == (1, {})
    async with fleet(stage, h, size=1):
        await until(has_begun(counter, 2))
    assert (len(set(counter.seen)), await stage.deliveries()) == (2, {})


async def test_what_waits_for_its_rate_keeps_nothing_from_running_alone(stage: Stage) -> None:
    """R7b: what may have killed relays runs while nothing else is in hand."""
    counter, other = open_counter(), Recorder()
    rated, suspected = handler("h", counter, rate="1/h"), handler("other", other)
    await stage.drain(
        handler("other", Recorder().fail("a", ValueError("once")), retry=RetrySchedule((0.01,)))
    )
    await stage.put("a")
    await stage.drain(
        handler("other", Recorder().fail("a", ValueError("once")), retry=RetrySchedule((0.01,)))
    )
    await stage.witness.execute(
        "UPDATE outbox_deliveries SET takeovers = 2, available_at = clock_timestamp()"
    )
    async with fleet(stage, rated, size=1):
        await put(stage, 3)
        await until(has_begun(counter, 1))
        async with fleet(stage, rated, suspected, size=1):
            await until(lambda: has_seen(other, {"a"}))
    assert len(set(counter.seen)) <= 2


async def test_run_until_idle_waits_for_the_rate(stage: Stage) -> None:
    counter = open_counter()
    await put(stage, 4)
    await stage.drain(handler("h", counter, rate="50/s"))
    assert len(counter.seen) == 4
    assert counter.began[-1] - counter.began[0] >= 0.06 - 0.012
