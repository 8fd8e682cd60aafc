"""The law of capture, driven through random histories on PostgreSQL against a plain model."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import asyncpg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import sessionmaker

from outbox_kernel.infrastructure.outbox import install_capture
from tests import drivers
from tests.bank import Bank, engine_of
from tests.properties.faces import faces_of
from tests.properties.histories import History
from tests.properties.kinds import DECLARED, IMPERATIVE, Base, Kind
from tests.properties.worlds import Place

STEPS = 50
# As tests.bank.engine_of has it, in libpq's words.
OPTIONS = "-c synchronous_commit=off -c lock_timeout=10s"

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
    History.drop: 3,
    History.emit: 2,
    History.execute: 1,
    History.commit_alone: 1,
    History.flush: 3,
    History.begin: 4,
    History.release: 3,
    History.undo: 3,
    History.roll_back: 4,
    History.commit: 4,
    History.expire: 2,
    History.refresh: 2,
    History.expunge: 3,
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
def opened(url: str, driver: str, kind: Kind) -> Iterator[Place]:
    """One loop and one engine for all histories of a run."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner, ExitStack() as stack:
        by_psycopg = url.replace("postgresql://", "postgresql+psycopg://")
        witness = runner.run(connected(url))
        stack.callback(lambda: runner.run(witness.close()))
        if driver == "asyncpg":
            engine = engine_of(url)
        else:
            engine = create_async_engine(by_psycopg, connect_args={"options": OPTIONS})
        stack.callback(lambda: runner.run(engine.dispose()))
        runner.run(created(engine))
        if driver != "psycopg, sync":
            yield Place(runner, Bank.on(engine), witness, kind)
            return
        waiting = create_engine(by_psycopg, connect_args={"options": OPTIONS})
        stack.callback(waiting.dispose)
        maker = install_capture(sessionmaker(waiting, expire_on_commit=False))
        yield Place(runner, Bank(engine, faces_of(maker)), witness, kind, awaits=False)


async def created(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)


async def connected(url: str) -> Any:
    return await asyncpg.connect(url)


@pytest.mark.parametrize(
    ("driver", "kind"),
    [*((name, IMPERATIVE) for name in drivers.NAMES), ("asyncpg", DECLARED)],
    ids=lambda each: each if isinstance(each, str) else each.wallets,
)
def test_the_outbox_holds_exactly_the_events_of_the_state_that_commits(
    bank_url: str, driver: str, kind: Kind
) -> None:
    """C, C9, C10: in every history of two sessions, whatever commits and whatever does not."""
    # What these differ in is little: most histories are for what most sessions have.
    examples = settings().max_examples // (1 if (driver, kind) == ("asyncpg", IMPERATIVE) else 4)
    try:
        with opened(bank_url, driver, kind) as place:
            machine = type("CaptureMachine", (CaptureMachine,), {"place": place})
            run_state_machine_as_test(
                machine, settings=settings(stateful_step_count=STEPS, max_examples=examples)
            )
    finally:
        gc.unfreeze()
