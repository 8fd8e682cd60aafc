"""Queues that bring one database the same events in any interleaving: each handler has its queue's order (R4, T3)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import asyncpg
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bank import engine_of
from tests.relaying import Stage, handler
from tests.streams import Stream, handle, of, store

ONE, OTHER = "abcdef", "ABCDEF"
WHATS = "".join(one + other for one, other in zip(ONE, OTHER, strict=True))
QUEUES = ("all", "few", "some")
SELECTIONS = st.frozensets(st.sampled_from(WHATS), min_size=1)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["bring", "bring again", "handle"]), st.sampled_from(QUEUES), st.integers(1, 4)
    ),
    max_size=12,
)
FAILURES_MAX = 2
REWIND = "UPDATE outbox_cursors SET rewind_to = 0 WHERE subscription = $1"
PAST_ALL_DELAYS = 3600.0


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        yield runner


@settings(max_examples=settings().max_examples // 20)
@given(
    selections=st.tuples(st.just(frozenset(WHATS)), SELECTIONS, SELECTIONS),
    steps=STEPS,
    failing=st.frozensets(st.tuples(st.sampled_from(QUEUES), st.sampled_from(WHATS)), max_size=FAILURES_MAX),
)
def test_each_handler_has_the_order_of_its_queue(
    bank_url: str,
    runner: asyncio.Runner,
    selections: tuple[frozenset[str], ...],
    steps: list[tuple[str, str, int]],
    failing: frozenset[tuple[str, str]],
) -> None:
    """R4, T3: at first and in a replay, and so has one that comes late and is given the past."""
    runner.run(history(bank_url, dict(zip(QUEUES, selections, strict=True)), steps, failing))


async def history(
    url: str, selections: dict[str, frozenset[str]], steps: list[tuple[str, str, int]], failing: Any
) -> None:
    engine, witness = engine_of(url), await asyncpg.connect(url)
    stage, streams = await Stage.on(engine, witness), (Stream(ONE), Stream(OTHER, UUID(int=8)))
    try:
        queues = {
            name: Queue(stage, name, in_order(chosen), set(failing), streams)
            for name, chosen in selections.items()
        }
        for queue in queues.values():
            await queue.handle()
        for action, name, number in steps:
            await getattr(queues[name], action.replace(" ", "_"))(number)
        for queue in queues.values():
            await queue.bring(len(WHATS))
        for queue in queues.values():
            # Once more than anything fails.
            for _ in range(FAILURES_MAX + 1):
                if sorted(queue.done) != sorted(queue.whats):
                    await queue.handle()
            queue.check(queue.done)
        assert set((await stage.events()).values()) == {"delivered"}
        for queue in queues.values():
            await queue.check_past()
    finally:
        await stage.close()
        await witness.close()
        await engine.dispose()


def in_order(chosen: frozenset[str]) -> str:
    """In the order in which they were published."""
    return "".join(what for what in WHATS if what in chosen)


@attrs.define
class Queue:
    """A queue, how far it is emptied, and what its handler has done."""

    stage: Stage
    name: str
    whats: str
    failing: set[tuple[str, str]]
    streams: tuple[Stream, Stream]
    brought: int = 0
    last: str = ""
    hours: int = 0
    done: list[str] = attrs.Factory(list)

    async def bring(self, number: int) -> None:
        """Store what comes next in the queue."""
        self.last = self.whats[self.brought : self.brought + number]
        self.brought += len(self.last)
        await self._store(self.last)

    async def bring_again(self, number: int) -> None:
        """Store what was not acknowledged once more, and what comes behind it."""
        before = self.last
        await self.bring(number)
        await self._store(before + self.last)

    async def _store(self, whats: str) -> None:
        one, other = self.streams
        if whats:
            events = [event for what in whats for event in (one if what in ONE else other)[what]]
            await store(self.stage, self.name, events)

    async def handle(self, _: int = 0) -> None:
        """Handle what there is, once all delays are over."""
        self.hours += 1
        await handle(self.stage, of(self.name, self._act), at=self.hours * PAST_ALL_DELAYS)

    async def _act(self, event: Any) -> None:
        if (self.name, event.what) in self.failing:
            self.failing.discard((self.name, event.what))
            raise ValueError("not yet")
        self.done.append(event.what)

    def check(self, done: list[str]) -> None:
        """Hold what was done against what the queue has, aggregate by aggregate."""
        for letters in (ONE, OTHER):
            assert [each for each in done if each in letters] == [
                each for each in self.whats if each in letters
            ]

    async def check_past(self) -> None:
        """Replay to the queue's handler all of it, and to one that never had any."""
        late = handler(f"late of {self.name}", self._act, queue=self.name, start="beginning")
        for each in (of(self.name, self._act), late):
            self.done.clear()
            await self.stage.witness.execute(REWIND, each.name)
            await handle(self.stage, each, at=self.hours * PAST_ALL_DELAYS)
            self.check(self.done)
