"""The law of delivery, driven through random histories of several relays on PostgreSQL against a plain model."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from outbox_kernel.infrastructure.relay import timeouts
from tests.bank import Bank, engine_of
from tests.properties.led_relays import PLANS
from tests.properties.relay_histories import History, Place
from tests.relaying import connected

STEPS = 40
EXAMPLES = 25

# How often each is chosen; see test_capture_machine.py for why not a rule for each.
ACTIONS = {
    History.commit: 8,
    History.commit_for_later: 1,
    History.begin_late: 2,
    History.end_late: 2,
    History.meet_stranger: 1,
    History.join: 4,
    History.leave: 1,
    History.vanish: 2,
    History.sleep_too_long: 2,
    History.cut: 1,
    History.deafen: 2,
    History.take_over: 2,
    History.read: 8,
    History.deliver: 6,
    History.deliver_suspect: 2,
    History.write: 8,
    History.watch: 3,
    History.balance: 5,
    History.move_names: 1,
    History.let_go_on: 5,
    History.go_round: 4,
    History.wait: 4,
    History.hold: 1,
    History.mend: 2,
    History.go_back: 1,
}
NAMES = [action.__name__ for action, weight in ACTIONS.items() for _ in range(weight)]
# A history without retries, or without crashes, goes where others do not.
ABSENT = st.frozensets(st.sampled_from(sorted(set(NAMES))), max_size=5)


class RelayMachine(RuleBasedStateMachine):
    place: Place
    history: History | None = None
    absent: frozenset[str] = frozenset()

    @initialize(absent=ABSENT, which=st.integers(0, 3))
    def begin(self, absent: frozenset[str], which: int) -> None:
        # What exists by now, most of it Hypothesis' own, is no garbage of this history; a long run keeps a lot.
        gc.collect()
        gc.freeze()
        self.absent = absent
        self.history = History(self.place)
        self.place.run(self.history.begin())
        for number in range(2):
            self.place.run(self.history.join(which + number, flag=bool(number)))

    @rule(
        action=st.sampled_from(NAMES),
        which=st.integers(0, 5),
        flag=st.booleans(),
        plans=st.lists(st.sampled_from(PLANS), min_size=1, max_size=4),
    )
    def act(self, action: str, which: int, flag: bool, plans: list[str]) -> None:
        if self.history is not None and action not in self.absent:
            self.history.plans = plans
            self.place.run(getattr(self.history, action)(which, flag))
            self.place.run(self.history.law.check(self.place.witness))

    def teardown(self) -> None:
        if self.history is not None:
            self.place.run(self.history.end())


@contextmanager
def opened(url: str) -> Iterator[Place]:
    """One loop, one engine and one set of connections for all histories of a run."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        engine = engine_of(url)
        others = [runner.run(connected(url)) for _ in range(3)]
        for each in others:
            runner.run(each.execute("SET synchronous_commit = off"))
        yield Place(runner, engine, Bank.on(engine).sessions, *others)
        for closing in (*(each.close for each in others), engine.dispose):
            runner.run(closing())


def test_every_event_is_delivered_in_order_and_takes_effect_once(
    bank_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R1-R7b: in every history of several relays, whatever happens between any two of their steps."""
    monkeypatch.setattr(timeouts, "SLOW_SECONDS", -1.0)
    monkeypatch.setattr(logging.getLogger("outbox.relay"), "disabled", True)
    profile = settings.get_current_profile_name()
    # A history of relays costs more than one of sessions.
    examples = EXAMPLES if profile == "default" else settings.get_profile(profile).max_examples
    try:
        with opened(bank_url) as place:
            machine = type("RelayMachine", (RelayMachine,), {"place": place})
            run_state_machine_as_test(
                machine, settings=settings(stateful_step_count=STEPS, max_examples=examples)
            )
    finally:
        gc.unfreeze()
