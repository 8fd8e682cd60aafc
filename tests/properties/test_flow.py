"""However events flow to a handler, one by one, in batches, within bounds: its effects are the log's (R16, R7)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import takewhile
from typing import Any
from uuid import UUID

import asyncpg
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import insert

from outbox_kernel.kernel import RetrySchedule
from outbox_kernel.kernel.errors import Reject, Unavailable
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.bank import engine_of
from tests.domain import journal
from tests.relaying import Stage, handler

WALLETS = tuple(UUID(int=number) for number in range(1, 3))
FLOWS = st.sampled_from(
    [
        {},
        {"concurrency": 1},
        {"concurrency": 3, "rate": "1000/s"},
        {"batch": 1},
        {"batch": 3},
        {"batch": 50},
        {"batch": 4, "concurrency": 2},
        {"batch": 5, "atomic": True},
        {"batch": 6, "on_dead": "continue"},
        {"on_dead": "continue"},
    ]
)
FAULTS = st.dictionaries(
    st.integers(0, 7),
    st.lists(st.sampled_from(["fail", "away", "late"]), max_size=2).flatmap(
        lambda faults: st.sampled_from([faults, [*faults, "fail"], [*faults, "reject"]])
    ),
    min_size=1,
    max_size=4,
)
# What is committed together, by aggregate, and what happens then.
STEPS = st.lists(
    st.tuples(
        st.lists(st.integers(0, len(WALLETS) - 1), min_size=3, max_size=8),
        st.sampled_from(["run", "go_back", "wait"]),
    ),
    min_size=1,
    max_size=3,
)
HOUR = 3600.0
RETRY = RetrySchedule((10,), jitter_share=0)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        yield runner


@settings(max_examples=settings().max_examples // 8)
@given(flow=FLOWS, faults=FAULTS, steps=STEPS)
def test_effects_are_those_of_the_log_whatever_the_flow(
    bank_url: str,
    runner: asyncio.Runner,
    flow: dict[str, Any],
    faults: dict[int, list[str]],
    steps: list[tuple[list[int], str]],
) -> None:
    """R4, R6, R7, R16: once, in order, charged to whom it was the fault of, and to nobody for an outage."""
    runner.run(history(bank_url, flow, faults, steps))


async def history(
    url: str, flow: dict[str, Any], faults: dict[int, list[str]], steps: list[tuple[list[int], str]]
) -> None:
    engine, witness = engine_of(url), await asyncpg.connect(url)
    shop = Shop(await Stage.on(engine, witness), flow, {key: [*each] for key, each in faults.items()})
    try:
        for wallets, action in steps:
            await shop.put(wallets)
            await getattr(shop, action)()
        before = None
        while before != (before := await shop.standing()):
            await shop.run()
        await shop.check(faults)
    finally:
        await shop.stage.close()
        await witness.close()
        await engine.dispose()


@attrs.define
class Shop:
    """A handler that has faults with some events, each so often, and else enters them into the journal."""

    stage: Stage
    flow: dict[str, Any]
    faults: dict[int, list[str]]
    wallet_of: list[int] = attrs.Factory(list)
    done: list[int] = attrs.Factory(list)
    hours: int = 0
    went_back: bool = False

    # --- what happens -------------------------------------------------------------------------------

    async def put(self, wallets: list[int]) -> None:
        """Commit the next events."""
        for wallet in wallets:
            await self.stage.put(str(len(self.wallet_of)), of=WALLETS[wallet])
            self.wallet_of.append(wallet)

    async def run(self) -> None:
        """Handle what there is, once all delays are over."""
        self.hours += 1
        await self.stage.drain(self._handler(), at=self.hours * HOUR)

    async def go_back(self) -> None:
        """Have all of the log read again, so that receipts are met."""
        await self.run()
        await self.stage.rewind()
        self.went_back = True

    async def wait(self) -> None:
        """Let more come first."""

    def _handler(self) -> HandlerRegistration:
        if "batch" in self.flow:
            return handler("h", self._handle, retry=RETRY, **self.flow)

        async def one(event: Any) -> None:
            await self._handle([event])

        return handler("h", one, retry=RETRY, **self.flow)

    async def _handle(self, events: list[Any]) -> None:
        numbers = [int(event.what) for event in events]
        async with self.stage.uow() as uow:
            await uow.session.execute(insert(journal), [{"line": f"{number:02}"} for number in numbers])
            for number in numbers:
                self._have_trouble(number, alone=len(numbers) == 1)
            await uow.commit()
        if not self.flow.get("atomic"):
            self.done += numbers
        late = [number for number in numbers if self.faults.get(number, [])[:1] == ["late"]]
        for number in late:
            self.faults[number].pop(0)
        if late and not self.flow.get("atomic"):
            raise ValueError("it is done already")
        if self.flow.get("atomic"):
            self.done += numbers

    def _have_trouble(self, number: int, *, alone: bool) -> None:
        if number in self.done:
            return  # it is run again, and its receipt is to be met
        fault = next(iter(self.faults.get(number, [])), None)
        if fault == "away":
            self.faults[number].pop(0)
            raise Unavailable("the till")
        if fault == "reject":
            raise Reject("never")
        if fault == "fail":
            if alone:  # till then it is of several, and nobody can say which
                self.faults[number].pop(0)
            raise ValueError("not today")

    async def standing(self) -> object:
        """What a run with nothing left to do would not change; the first run always changes what `run` counts."""
        rows = await self.stage.witness.fetch(
            "SELECT event_id, status, attempts FROM outbox_deliveries ORDER BY 1"
        )
        return self.hours > 0, len(self.done), repr(self.faults), [tuple(row) for row in rows]

    # --- what holds then ----------------------------------------------------------------------------

    async def check(self, faults: dict[int, list[str]]) -> None:
        """Hold what was done against what was committed."""
        expected = [number for number in range(len(self.wallet_of)) if self._gets(number, faults)]
        assert await self.stage.journal() == [f"{number:02}" for number in expected]
        for wallet in range(len(WALLETS)):
            mine = [number for number in dict.fromkeys(self.done) if self.wallet_of[number] == wallet]
            assert mine == [number for number in expected if self.wallet_of[number] == wallet]
        rows = await self.stage.witness.fetch(
            "SELECT (payload->>'what')::int AS number, delivery.* FROM outbox_deliveries AS delivery "
            "JOIN outbox_events USING (event_id)"
        )
        attempts = {row["number"]: row["attempts"] for row in rows}
        for number in range(len(self.wallet_of)):
            charged, had = attempts.get(number, 0), self._charged(number, faults)
            # What has gone back begins anew, as does what was read behind an event that stands still.
            may_be_less = self.went_back or any("away" in each for each in faults.values())
            assert (number, charged) == (number, had) or (may_be_less and charged < had)

    def _gets(self, number: int, faults: dict[int, list[str]]) -> bool:
        """Whether its effect is there in the end: it is not dead, and parked behind none that is."""
        before = [number, *self._before(number)] if self.flow.get("on_dead") != "continue" else [number]
        return not any(is_dead(faults.get(each, [])) for each in before)

    def _before(self, number: int) -> list[int]:
        return [each for each in range(number) if self.wallet_of[each] == self.wallet_of[number]]

    def _charged(self, number: int, faults: dict[int, list[str]]) -> int:
        """Return how many attempts it has failed with: none that it never had, and none after it was done."""
        if self.flow.get("on_dead") != "continue" and any(
            is_dead(faults.get(each, [])) for each in self._before(number)
        ):
            return 0
        had = had_by(faults.get(number, []))
        return had.count("fail") + had.count("reject")


def had_by(faults: list[str]) -> list[str]:
    """The faults that an event has had by the time it is done: late ones come after its effect."""
    return list(takewhile(lambda fault: fault != "late", faults))


def is_dead(faults: list[str]) -> bool:
    return "reject" in had_by(faults)
