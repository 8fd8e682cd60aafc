"""Cursors that are given, taken and joined while their relay reads: no event falls between two readers (R1, R2b)."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox_kernel.infrastructure.outbox.sql.fragments import SHARDS
from outbox_kernel.infrastructure.relay.log import Log
from outbox_kernel.infrastructure.relay.reading import Reading
from tests.relaying import Recorder, Stage, handler

EVERY = frozenset(range(SHARDS))
LOW, HIGH = UUID(int=0), UUID(int=SHARDS - 1)


async def halved(stage: Stage) -> None:
    """Whoever takes the cursors of "h" next has two readers for them, at one place."""
    await stage.drain(handler("h", Recorder()))
    log = await stage.log()
    [reader] = await log.take(("h", shard) for shard in EVERY)
    for half in (frozenset(range(SHARDS // 2)), frozenset(range(SHARDS // 2, SHARDS))):
        await log.give(reader, half, uuid4())


@pytest.mark.parametrize("begins", ["before", "while they are joined"])
@pytest.mark.parametrize("ends", ["while they are joined", "after"])
async def test_what_one_reader_reads_while_it_is_joined_is_lost_for_neither(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, begins: str, ends: str
) -> None:
    """R2b: the read was for the cursors that the reader had then, not for those that have come to it."""
    seen, join, read = Recorder(), Log.join, Reading.read_for
    joining, may_join, reading, may_read = (asyncio.Event() for _ in range(4))

    async def join_slowly(self: Log, *arguments: Any) -> None:
        joining.set()
        await may_join.wait()
        await join(self, *arguments)

    async def read_slowly(self: Reading, *arguments: Any) -> Any:
        found = await read(self, *arguments)
        reading.set()
        await may_read.wait()
        return found

    async def read_once() -> None:
        # Who says that there is more says it to one of them, as when the other has no room.
        first, second = shift.subscribers["h"].readers
        first.is_due, second.is_due = True, False
        if wanting := shift.reading.wanting():
            await shift.read_for(wanting)

    await halved(stage)
    await stage.put("low", of=LOW)
    await stage.put("high", of=HIGH)
    async with stage.relay(handler("h", seen))._shift_begun(takes_all=True) as shift:  # noqa: SLF001 - by the hand
        monkeypatch.setattr(Log, "join", join_slowly)
        monkeypatch.setattr(Reading, "read_for", read_slowly)
        assert len(shift.subscribers["h"].readers) == 2
        steps = [read_once(), shift.ownership.join()]
        tasks = [asyncio.create_task(each) for each in (steps if begins == "before" else reversed(steps))]
        await (reading if begins == "before" else joining).wait()
        if ends == "after":
            may_join.set()
            await tasks[1 if begins == "before" else 0]
        may_read.set()
        await tasks[0 if begins == "before" else 1]
        may_join.set()
        await asyncio.gather(*tasks)
        assert len(shift.subscribers["h"].readers) == 1
        await shift.finish_in_hand()
        await shift.go_round()
    assert sorted(seen.seen) == ["high", "low"]
