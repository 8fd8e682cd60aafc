"""The law of delivery, driven through random histories of several relays on PostgreSQL against a plain model."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from outbox_kernel.infrastructure.relay import crew
from tests.bank import Bank, engine_of
from tests.properties.chronicle import Place
from tests.properties.fleet import PLANS, Sea
from tests.properties.voyages import Voyage

STEPS = 50
EXAMPLES = 100

# How often each is chosen; see test_capture_machine.py for why not a rule for each.
ACTIONS = {
    Voyage.commit: 8,
    Voyage.commit_for_later: 2,
    Voyage.begin_late: 1,
    Voyage.end_late: 2,
    Voyage.set_out: 4,
    Voyage.sink: 1,
    Voyage.stop_in_order: 1,
    Voyage.vanish_in_a_claim: 1,
    Voyage.vanish_and_be_replaced: 4,
    Voyage.wait: 5,
    Voyage.hold: 1,
    Voyage.mend: 2,
    Voyage.claim_events: 8,
    Voyage.claim_deliveries: 6,
    Voyage.claim_known: 6,
    Voyage.claim_suspect: 1,
    Voyage.let_go_on: 6,
    Voyage.watch: 3,
    Voyage.write: 8,
    Voyage.renew: 2,
    Voyage.maintain: 4,
    Voyage.deliver: 4,
}
NAMES = [action.__name__ for action, weight in ACTIONS.items() for _ in range(weight)]
# A history without retries, or without crashes, goes where others do not.
ABSENT = st.frozensets(st.sampled_from(sorted(set(NAMES))), max_size=5)


class RelayMachine(RuleBasedStateMachine):
    place: Place
    voyage: Voyage | None = None
    absent: frozenset[str] = frozenset()

    @initialize(absent=ABSENT, version=st.integers(0, 3))
    def begin(self, absent: frozenset[str], version: int) -> None:
        # What exists by now, most of it Hypothesis' own, is no garbage of this history; a long run keeps a lot.
        gc.collect()
        gc.freeze()
        self.absent = absent
        self.voyage = Voyage(self.place)
        for number in range(2):
            self.voyage.set_out(version + number, flag=True)
        self.voyage.commit(version, flag=True)
        self.voyage.check()

    @rule(
        action=st.sampled_from(NAMES),
        which=st.integers(0, 5),
        flag=st.booleans(),
        plans=st.lists(st.sampled_from(PLANS), min_size=1, max_size=4),
    )
    def act(self, action: str, which: int, flag: bool, plans: list[str]) -> None:
        if self.voyage is not None and action not in self.absent:
            self.voyage.tell_plans(plans)
            getattr(self.voyage, action)(which, flag)
            self.voyage.check()

    def teardown(self) -> None:
        if self.voyage is not None:
            self.voyage.end()


@contextmanager
def opened(url: str) -> Iterator[Place]:
    """One loop, one engine and one set of connections for all histories of a run."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        engine = engine_of(url)
        sea = Sea.on(engine, Bank.on(engine).sessions)
        witness, writer = runner.run(connected(url)), runner.run(connected(url))
        yield Place(runner, sea, witness, writer)
        for closing in (sea.close, witness.close, writer.close, engine.dispose):
            runner.run(closing())


async def connected(url: str) -> asyncpg.Connection:
    return await asyncpg.connect(url)


def test_every_event_is_delivered_in_order_and_takes_effect_once(
    bank_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2, R4-R7b, R9: in every history of several relays, whatever happens between any two of their steps."""
    monkeypatch.setattr(crew, "SLOW_SECONDS", -1.0)
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
