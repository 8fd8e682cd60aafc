"""Walking lanes: a member runs the handlers of an aggregate's events one after the other (R4, R5, R8)."""

from __future__ import annotations

import asyncio
import contextvars
import time
from typing import TYPE_CHECKING, cast

import attrs

from outbox_kernel.infrastructure.outbox.receipts import HandlerRun
from outbox_kernel.infrastructure.relay.lanes import Lane
from outbox_kernel.infrastructure.relay.running import DONE, GivenBack, Run, run_handler

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.relay.crew import Crew
    from outbox_kernel.infrastructure.relay.in_hand import InHand
    from outbox_kernel.infrastructure.relay.lanes import Turn
    from outbox_kernel.infrastructure.relay.roster import Carried
    from outbox_kernel.infrastructure.relay.running import Verdict
    from outbox_kernel.infrastructure.relay.work import DeliveryWork, EventWork

# How long members may keep the event loop when no handler ever waits for anything.
LOOP_SECONDS_MAX = 0.005


@attrs.define(eq=False)
class Member:
    """Who runs handlers, one at a time."""

    crew: Crew
    hand: InHand
    schema: str | None
    task: asyncio.Task[None] = attrs.field(init=False)
    run: Run | None = None
    work: EventWork | DeliveryWork | None = None
    turn: Turn | None = None
    aside: bool = False
    """It is no longer counted: what it runs is slow, or its lane has ended with it."""

    async def serve(self) -> None:
        """Walk lanes for as long as there are any."""
        began = time.monotonic()
        while not self.aside and (lane := self.crew.next_lane(self)) is not None:
            if isinstance(lane, Lane):
                began = await self._walk(lane, began)
            else:
                await self._walk_turn(lane)

    async def _walk(self, lane: Lane, began: float) -> float:
        items = lane.items
        while items:
            self.work = work = items[0]
            if work.lease is not self.hand.lease:
                return began  # lost, and with it all that is behind it
            while work.todo:
                await self._first_pass(work, work.todo.pop(0))
                if self.aside or self._hand_on(lane):
                    return began
            self.hand.finish(work)
            if self.crew.stopping:
                self.hand.give_back_lane(lane)
            if time.monotonic() - began > LOOP_SECONDS_MAX:
                await asyncio.sleep(0)
                began = time.monotonic()
        lane.walked = False
        return began

    async def _first_pass(self, work: EventWork, carried: Carried) -> None:
        if carried.ordered and work.lane.blocks(carried.name, work.claim):
            self.hand.leave_waiting(work, carried.name, ordered=True)
            return
        if not self.crew.lets_in(carried.name):
            self.hand.leave_waiting(work, carried.name, ordered=carried.ordered)
            return
        try:
            verdict = await self._run(carried, work, 0)
        except GivenBack:
            self._give_back(work, carried)
            return
        if verdict is None or (verdict is DONE and not self.aside):
            return
        if self.aside:
            self.hand.note_late(work, carried, verdict)
        else:
            self.hand.note(work, carried, verdict)

    def _give_back(self, work: EventWork, carried: Carried) -> None:
        if self.aside:
            self.hand.give_back_slow(work, carried)
        else:
            self.hand.give_back_rest(work, carried)
            self.crew.put_aside(self)

    async def _walk_turn(self, turn: Turn) -> None:
        self.turn = turn
        while turn.items and turn.items[0].lease is self.hand.lease:
            self.work = work = turn.items.popleft()
            try:
                # Turns of publishers go to a press.
                verdict = await self._run(cast("Carried", work.carried), work, work.attempts)
            except GivenBack:
                self.hand.give_back_delivery(work)
                break
            if verdict is None:
                return
            self.hand.settle(work, verdict)
            if self.crew.stopping or (verdict.status != "done" and work.carried.ordered):
                break
            if self._hand_on(turn):
                return
        self.hand.give_back_turn(turn)

    def _hand_on(self, lane: Lane | Turn) -> bool:
        """Let another member go on with the lane if the handler has left something in this one's context."""
        if contextvars.copy_context() == self.crew.context:
            return False
        self.crew.hand_on(lane)
        self.crew.put_aside(self)
        return True

    async def _run(self, carried: Carried, work: EventWork | DeliveryWork, attempts: int) -> Verdict | None:
        """Run a handler; None if its outcome is of no account: given up meanwhile, or the lease is lost."""
        row, lease = work.row, work.lease
        receipt = HandlerRun(
            *(row.event_id, carried.name, lease.relay, lease.epoch),
            self.schema,
            former=carried.renamed_from,
            database=self.hand.database,
        )
        run = self.run = Run(carried, row, attempts, receipt, self.task)
        verdict: Verdict | None = None
        try:
            verdict = await run_handler(run)
        except GivenBack:
            if lease is self.hand.lease:
                raise
        finally:
            receipt.over = True
            self.run = None
            self.crew.let_out(run)
        if lease is not self.hand.lease:
            self.crew.put_aside(self)
            return None
        return None if run.given_up else verdict
