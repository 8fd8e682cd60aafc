"""The order of an aggregate holds while its events fail, are slow, and are gone back to (R4, R17)."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest
from sqlalchemy import text

from outbox_kernel.infrastructure.operations import Desk, Selection
from outbox_kernel.infrastructure.operations.mending import choose_for_retry, retry
from outbox_kernel.infrastructure.operations.replaying import rewind
from outbox_kernel.kernel import RetrySchedule
from tests.relaying import Stage, handler
from tests.serving import serving
from tests.waiting import until

WALLETS, EVENTS = 4, 12
# A run that is slow has a delivery.
IN_HAND = """
SELECT count(*) FROM outbox_deliveries JOIN outbox_events USING (event_id)
WHERE status = 'leased' AND payload->>'what' = :what
"""


@attrs.define
class Wallet:
    """What a handler has done with one aggregate, held against the order of its events."""

    done: int = 0
    """The number of the event that was handled last."""
    running: bool = False
    wrong: list[str] = attrs.Factory(list)

    async def handle(self, number: int, work: Any) -> None:
        """Handle it, and note what is wrong with that."""
        if self.running:
            self.wrong.append(f"{number} began while another ran")
        if number > self.done + 1:
            self.wrong.append(f"{number} came after {self.done}")
        self.running = True
        try:
            await work
            self.done = number
        finally:
            self.running = False


@attrs.define
class Handler:
    """Handles events, and is often slow or fails."""

    stage: Stage
    random: Random
    wallets: dict[UUID, Wallet] = attrs.Factory(lambda: {uuid4(): Wallet() for _ in range(WALLETS)})

    async def __call__(self, event: Any) -> None:
        wallet, number = event.what.split(":")
        await self.wallets[UUID(wallet)].handle(int(number), self._work(event.what))

    async def _work(self, what: str) -> None:
        chance = self.random.random()
        if chance < 0.05:
            await until(partial(self._has_stepped_aside, what))
        elif chance < 0.25:
            raise ValueError("not today")

    async def _has_stepped_aside(self, what: str) -> bool:
        async with self.stage.engine.connect() as connection:
            return bool(await connection.scalar(text(IN_HAND), {"what": what}))

    async def has_done(self, number: int) -> bool:
        """Whether it has come so far with some wallet."""
        return any(wallet.done >= number for wallet in self.wallets.values())

    async def has_done_all(self) -> bool:
        """Whether it has come to the end of each; nothing waits for its time."""
        desk = Desk(self.stage.witness)
        await retry(desk, await choose_for_retry(desk, Selection(handler="h")))
        statuses = set((await self.stage.events()).values())
        return statuses == {"delivered"} and {each.done for each in self.wallets.values()} == {EVENTS}


@pytest.mark.parametrize("seed", range(4))
async def test_no_event_comes_before_an_earlier_one_however_often_it_is_gone_back(
    stage: Stage, seed: int
) -> None:
    """Two relays serve, and an operator goes back at any moment."""
    random, desk = Random(seed), Desk(stage.witness)
    act = Handler(stage, random)
    h = handler("h", act, retry=RetrySchedule((0.2, 0.6)))
    settings: dict[str, Any] = {"at": None, "poll_interval_seconds": 0.2}
    async with serving(stage.relay(h, **settings)), serving(stage.relay(h, **settings)):
        for number in range(1, EVENTS + 1):
            for wallet in random.sample(list(act.wallets), WALLETS):
                await stage.put(f"{wallet}:{number}", of=wallet)
            await desk.wake_relays()
            if random.random() < 0.6:
                await rewind(desk, "h", random.randint(1, WALLETS * number), again=True)
            await until(partial(act.has_done, number - random.randint(0, 8)))
        await rewind(desk, "h", 1, again=True)
        await until(act.has_done_all)
    assert [wallet.wrong for wallet in act.wallets.values()] == [[]] * WALLETS
