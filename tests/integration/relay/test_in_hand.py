"""What a relay has in hand is bounded by what memory has room for, in bytes as well as in number (R12)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from outbox_kernel.infrastructure.outbox.delivery import Outcome
from outbox_kernel.infrastructure.relay import cursor, deliveries, log, timeouts
from outbox_kernel.infrastructure.relay.deliveries import Deliveries
from outbox_kernel.infrastructure.relay.relay import OutboxRelay
from outbox_kernel.infrastructure.relay.subscriber import Subscriber
from outbox_kernel.kernel import RetrySchedule
from tests.relaying import Recorder, Stage, carrying, handler
from tests.serving import LONG, all_delivered, serving
from tests.waiting import until

LARGE = 1_000
COUNT = 10
ONCE_MORE = RetrySchedule((0,), dead_at=2)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory has room for three large events, and a read or a claim brings two."""
    for module in (log, deliveries):
        monkeypatch.setattr(module, "READ_BYTES_MAX", LARGE * 3 // 2)
    for module in (cursor, deliveries):
        monkeypatch.setattr(module, "IN_HAND_BYTES_MAX", LARGE * 3)
    monkeypatch.setattr(deliveries, "DELIVERY_BYTES_MIN", LARGE // 2)


def large(count: int = COUNT, times: int = 1) -> list[str]:
    return [f"{number:0{LARGE * times}}" for number in range(count)]


async def reads_no_further(relay: OutboxRelay) -> bool:
    """Whether it knows that there is more to read, and leaves it."""
    shift = relay._shift  # noqa: SLF001 - nobody else can say
    if shift is None:
        return False
    [reader] = shift.subscribers["h"].readers
    return reader.is_due and reader.in_hand > 0 and not shift.reading.wanting()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("fails", [False, True])
async def test_large_events_are_read_when_there_is_room_for_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """R12: a thousand of the largest were a gigabyte, read by read; once some are done the next are read."""
    monkeypatch.setattr(timeouts, "SLOW_SECONDS", LONG)
    go, at_work = asyncio.Event(), []

    async def act(event: Any) -> None:
        at_work.append(event.what)
        await go.wait()
        if fails and at_work.count(event.what) == 1:
            raise ValueError("not today")

    await stage.put(*large())
    relay = stage.relay(handler("h", act, retry=ONCE_MORE), at=None, poll_interval_seconds=LONG)
    async with serving(relay):
        await until(lambda: reads_no_further(relay))
        assert len(at_work) <= 4
        go.set()
        await until(all_delivered(stage, COUNT))
    assert sorted({*at_work}) == large()


@pytest.mark.usefixtures("small")
async def test_large_deliveries_are_taken_when_there_is_room_for_them(stage: Stage) -> None:
    """R12: each claim brought as much again, up to a thousand of them."""
    recorder, works = Recorder(), []
    for what in large():
        recorder.fail(what, ValueError("not today"))
    await stage.put(*large())
    await stage.drain(handler("h", recorder))
    subscribers = carrying("h")
    subscribers["h"].take_turn = lambda turn: works.extend(turn.works)
    taking = Deliveries(await stage.log(at=60), subscribers)
    while await taking.take():
        pass
    assert len(works) == 4
    assert taking.rest_seconds() == float("inf")
    for number, work in enumerate(works):
        if number % 2:
            taking.give_back(work.row, "h")
        else:
            taking.settle(Outcome(work.row, "h", work.row.turn, "done", 2))
    await taking.write()
    assert taking.rest_seconds() == 0
    assert await taking.take() == 2


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("fails_first", [False, True])
async def test_what_is_larger_than_all_the_room_goes_through(stage: Stage, fails_first: bool) -> None:
    """R12: one at a time, as an event and as a delivery."""
    whats, recorder = large(times=5), Recorder()
    for what in whats if fails_first else []:
        recorder.fail(what, ValueError("not today"))
    await stage.put(*whats)
    relay = stage.relay(handler("h", recorder, retry=ONCE_MORE), at=None, poll_interval_seconds=LONG)
    async with serving(relay):
        await until(all_delivered(stage, COUNT))
    assert sorted({*recorder.seen}) == whats


@pytest.mark.usefixtures("small")
async def test_small_deliveries_are_bounded_in_number(stage: Stage) -> None:
    """R12: each costs more than what it says."""
    whats, recorder, works = list("abcdefghij"), Recorder(), []
    for what in whats:
        recorder.fail(what)
    await stage.put(*whats)
    await stage.drain(handler("h", recorder))
    subscribers = carrying("h")
    subscribers["h"].take_turn = lambda turn: works.extend(turn.works)
    taking = Deliveries(await stage.log(at=60), subscribers)
    await stage.put("k")
    assert await taking.take() == COUNT
    assert taking.rest_seconds() == float("inf")
    for work in works:
        taking.settle(Outcome(work.row, "h", work.row.turn, "done", 2))
    await taking.write()
    assert taking.rest_seconds() == 0


@pytest.mark.usefixtures("small")
async def test_a_handlers_large_deliveries_leave_others_their_room(stage: Stage) -> None:
    """R4, R12: while one is slow over them, another one goes on."""
    slow, quick = Recorder(), Recorder().fail("z")
    for what in large():
        slow.fail(what)
    await stage.put(*large(), "z")
    await stage.drain(handler("slow", slow), handler("quick", quick))
    subscribers, works = carrying("slow"), []
    taking = Deliveries(await stage.log(at=60), subscribers)
    subscribers["slow"].take_turn = lambda turn: works.extend(turn.works)
    while await taking.take():
        pass
    subscribers.update(carrying("quick"))
    subscribers["quick"].take_turn = lambda turn: works.extend(turn.works)
    taking.look_everywhere()
    assert await taking.take() == 1
    assert works[-1].row.handler == "quick"


@pytest.mark.usefixtures("small")
async def test_room_that_slow_runs_leave_is_used_before_anything_is_written(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12: nothing of theirs is left to be written that anybody could be woken by."""
    monkeypatch.setattr(timeouts, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr("outbox_kernel.infrastructure.relay.progress.WRITE_SECONDS", LONG)
    stepped_aside, aside = Subscriber.stepped_aside, dict[str, asyncio.Event]()

    def note(subscriber: Subscriber, work: Any) -> None:
        stepped_aside(subscriber, work)
        aside[json.loads(work.row.payload)["what"]].set()

    async def act(event: Any) -> None:
        await aside.setdefault(event.what, asyncio.Event()).wait()
        seen.append(event.what)

    async def all_are_done() -> bool:
        return len(seen) == COUNT

    seen: list[str] = []
    monkeypatch.setattr(Subscriber, "stepped_aside", note)
    await stage.put(*large())
    relay = stage.relay(handler("h", act), at=None, poll_interval_seconds=3600.0)
    async with serving(relay):
        await until(all_are_done)
