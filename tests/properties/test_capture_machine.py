"""The law of capture, driven through random histories on PostgreSQL against a plain model."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.bank import Bank, engine_of
from tests.properties.histories import History
from tests.properties.worlds import Place

STEPS = 50

# How often each is chosen. A rule of its own for each would not do: Hypothesis switches off a random half of a
# machine's rules, and what shows bugs is the long chain: begin, change, flush, undo, add again, commit.
ACTIONS = {
    History.pay: 3,
    History.note: 3,
    History.enter: 2,
    History.set_balance: 2,
    History.create: 3,
    History.add_again: 3,
    History.load: 4,
    History.delete: 2,
    History.drop: 2,
    History.emit: 2,
    History.execute: 1,
    History.commit_alone: 1,
    History.flush: 3,
    History.begin: 4,
    History.release: 3,
    History.undo: 3,
    History.roll_back: 2,
    History.commit: 4,
    History.expire: 2,
    History.refresh: 2,
    History.expunge: 2,
    History.expunge_all: 1,
    History.close: 2,
    History.attach: 3,
    History.touch_what_is_stale: 2,
    History.another_commits: 2,
    History.retry: 1,
}
NAMES = [action.__name__ for action, weight in ACTIONS.items() for _ in range(weight)]
# A history without commits, or without flushes, goes where others do not.
ABSENT = st.frozensets(st.sampled_from(sorted(set(NAMES))), max_size=6)


class CaptureMachine(RuleBasedStateMachine):
    place: Place
    history: History | None = None
    absent: frozenset[str] = frozenset()

    @initialize(autoflush=st.booleans(), forgetful=st.booleans(), absent=ABSENT)
    def begin(self, autoflush: bool, forgetful: bool, absent: frozenset[str]) -> None:
        # What exists by now is no garbage of this history; it collects often, and a long run keeps a lot.
        gc.collect()
        gc.freeze()
        self.absent = absent
        self.history = History(self.place, autoflush=autoflush, forgetful=forgetful)

    @rule(
        action=st.sampled_from(NAMES),
        who=st.sampled_from("AB"),
        # Which of those that there are: taken modulo their number, so that it shrinks to the first.
        which=st.integers(0, 5),
        flag=st.booleans(),
    )
    def act(self, action: str, who: str, which: int, flag: bool) -> None:
        if action not in self.absent:
            getattr(self.history, action)(who, which, flag)

    def teardown(self) -> None:
        if self.history is not None:
            self.history.end()


@contextmanager
def opened(url: str) -> Iterator[Place]:
    """One loop and one engine for all histories of a run."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        engine = engine_of(url)
        witness = runner.run(connected(url))
        yield Place(runner, Bank.on(engine), witness)
        runner.run(witness.close())
        runner.run(engine.dispose())


async def connected(url: str) -> Any:
    return await asyncpg.connect(url)


def test_the_outbox_holds_exactly_the_events_of_the_state_that_commits(bank_url: str) -> None:
    """C: in every history of two sessions, whatever commits and whatever does not."""
    try:
        with opened(bank_url) as place:
            machine = type("CaptureMachine", (CaptureMachine,), {"place": place})
            run_state_machine_as_test(machine, settings=settings(stateful_step_count=STEPS))
    finally:
        gc.unfreeze()
