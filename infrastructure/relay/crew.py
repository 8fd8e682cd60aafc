"""The crew: members who walk lanes, so that an aggregate's events are handled one after the other (R4, R5, R8).

A member walks one lane at a time. When a handler is slow, its member stays with it and the lane goes on with
another: the run has become a delivery, and later events of the lane leave that handler out.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from typing import TYPE_CHECKING

import attrs

from infrastructure.outbox.receipts import HandlerRun
from infrastructure.relay.lanes import Lane, Lanes, Turn
from infrastructure.relay.running import DONE, GivenBack, Run, Verdict, give_up, run_handler
from infrastructure.relay.work import DeliveryWork, EventWork, Outcome
from kernel.handlers import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infrastructure.relay.ledger import Ledger
    from infrastructure.relay.roster import Carried, Roster
    from infrastructure.relay.store import Lease
    from infrastructure.relay.work import ClaimedDelivery, ClaimedEvent

SLOW_SECONDS = 1.0
GRACE_SECONDS = 5.0
# How long members may keep the event loop when no handler ever waits for anything.
LOOP_SECONDS_MAX = 0.005
TAKEOVERS_OF_A_SUSPECT = 2


@attrs.define(eq=False)
class Member:
    """Who runs handlers, one at a time."""

    task: asyncio.Task[None] = attrs.field(init=False)
    run: Run | None = None
    work: EventWork | DeliveryWork | None = None
    turn: Turn | None = None
    aside: bool = False
    """It is no longer counted: what it runs is slow, or its lane has ended with it."""


class Crew:
    """The members of a relay and the lanes before them."""

    def __init__(
        self, ledger: Ledger, roster: Roster, *, concurrency: int, schema: str | None = None
    ) -> None:
        self._ledger = ledger
        self._roster = roster
        self._concurrency = concurrency
        self._schema = schema
        self._lanes = Lanes()
        self._ready: deque[Lane | Turn] = deque()
        self._members: set[Member] = set()
        self._given_up: set[asyncio.Task[None]] = set()
        self._slow: dict[str, int] = {}
        self._claim = 0
        self._counted = 0
        self._beginning: Member | None = None
        self._stopping = False
        self.in_hand = 0
        self.changed = asyncio.Event()
        self.lease: Lease
        # Every member begins in the context in which the relay was made, not in one that a handler left.
        self._context = contextvars.copy_context()

    # --- taking work --------------------------------------------------------------------------------

    def begin_claim(self) -> int:
        """Number a claim that is about to read the database."""
        self._claim += 1
        return self._claim

    def take_events(self, rows: Sequence[ClaimedEvent], claim: int) -> None:
        """Put claimed events into their lanes, in order."""
        for row in rows:
            due = self._roster.due(row["event_type"], row["event_version"])
            lane = self._lanes.of(row)
            work = EventWork(row, claim, list(due.run), lane, self.lease)
            if due.leave or row["unsettled"] or row["takeovers"] >= TAKEOVERS_OF_A_SUSPECT:
                self._leave_out(work, {each.name: each.ordered for each in due.leave})
            lane.items.append(work)
            lane.unmarked += 1
            if not lane.walked:
                lane.walked = True
                self._ready.append(lane)
        self.in_hand += len(rows)
        self._lanes.claimed(claim)
        self._muster()

    def _leave_out(self, work: EventWork, elsewhere: dict[str, bool]) -> None:
        """Write down who is not to run in the first pass: not here, not before its turn, not among others."""
        for name, ordered in elsewhere.items():
            self._wait(work, name, ordered=ordered)
        suspect = work.row["takeovers"] >= TAKEOVERS_OF_A_SUSPECT
        unsettled = set(work.row["unsettled"] or ())
        for carried in list(work.todo):
            if suspect or (carried.ordered and unsettled & {carried.name, carried.registration.renamed_from}):
                work.todo.remove(carried)
                self._wait(
                    work,
                    carried.name,
                    ordered=carried.ordered,
                    takeovers=TAKEOVERS_OF_A_SUSPECT if suspect else 0,
                )

    def take_deliveries(self, rows: Sequence[ClaimedDelivery]) -> None:
        """Put claimed deliveries into lanes of their own, one per turn."""
        turns: dict[tuple[str, str], Turn] = {}
        for row in rows:
            work = DeliveryWork(row, self._roster.carried[row.handler], row.attempts, self.lease)
            turns.setdefault((row.turn, row.handler), Turn(deque())).items.append(work)
        self._ready.extend(turns.values())
        self.in_hand += len(rows)
        self._muster()

    def room_for(self, handler: str) -> int:
        """Return how many more slow runs of a handler are let in."""
        return self._concurrency - self._slow.get(handler, 0)

    def marked(self, works: Sequence[EventWork]) -> None:
        """Take note that outcomes are in the database."""
        self.in_hand -= len(works)
        self._lanes.marked(works, self._claim)
        self.changed.set()

    def _muster(self) -> None:
        """Call up one member for the lanes that wait; it calls up the next when it begins.

        Where handlers wait for nothing, the first has walked all lanes before a second would have begun.
        """
        if not self._ready or self._beginning is not None or self._counted >= self._concurrency:
            return
        member = self._beginning = Member()
        self._members.add(member)
        self._counted += 1
        member.task = asyncio.get_running_loop().create_task(
            self._serve(member), context=self._context.copy()
        )
        # Not at the end of the coroutine: one that is cancelled before it begins never gets there.
        member.task.add_done_callback(lambda _: self._ended(member))

    def _ended(self, member: Member) -> None:
        self._beginning = None if self._beginning is member else self._beginning
        self._put_aside(member)
        self._members.discard(member)
        self._given_up.discard(member.task)
        self.changed.set()
        if not member.task.cancelled():
            self._muster()

    def _put_aside(self, member: Member) -> None:
        """Count it no longer."""
        if not member.aside:
            member.aside = True
            self._counted -= 1

    # --- walking lanes ------------------------------------------------------------------------------

    async def _serve(self, member: Member) -> None:
        began = time.monotonic()
        self._beginning = None
        while self._ready and not member.aside:
            lane = self._ready.popleft()
            self._muster()
            if isinstance(lane, Lane):
                began = await self._walk(lane, member, began)
            else:
                await self._walk_turn(lane, member)

    async def _walk(self, lane: Lane, member: Member, began: float) -> float:
        items = lane.items
        while items:
            member.work = work = items[0]
            if work.lease is not self.lease:
                return began  # lost, and with it all that is behind it
            while work.todo:
                await self._first_pass(member, work, work.todo.pop(0))
                if member.aside or self._hand_on(member, lane):
                    return began
            items.popleft()
            self._ledger.finish(work)
            if self._stopping:
                self._give_back_lane(lane)
            if time.monotonic() - began > LOOP_SECONDS_MAX:
                await asyncio.sleep(0)
                began = time.monotonic()
        lane.walked = False
        return began

    async def _first_pass(self, member: Member, work: EventWork, carried: Carried) -> None:
        if carried.ordered and work.lane.blocks(carried.name, work.claim):
            self._wait(work, carried.name, ordered=True)
            return
        if self._slow and self.room_for(carried.name) <= 0:
            self._wait(work, carried.name, ordered=carried.ordered)
            return
        try:
            verdict = await self._run(member, carried, work, 0)
        except GivenBack:
            self._give_back_run(member, work, carried)
            return
        if verdict is None or (verdict is DONE and not member.aside):
            return
        outcome = _outcome(carried, work.key_for(ordered=carried.ordered), verdict)
        if member.aside:
            self._late(work, outcome)
        else:
            work.lane.add(work, outcome)

    async def _walk_turn(self, turn: Turn, member: Member) -> None:
        member.turn = turn
        while turn.items and turn.items[0].lease is self.lease:
            member.work = work = turn.items.popleft()
            try:
                verdict = await self._run(member, work.carried, work, work.attempts)
            except GivenBack:
                turn.items.appendleft(work)
                break
            if verdict is None:
                return
            self._settle(work, verdict)
            if self._stopping or (verdict.status != "done" and work.carried.ordered):
                break
            if self._hand_on(member, turn):
                return
        self._give_back_turn(turn)

    def _hand_on(self, member: Member, lane: Lane | Turn) -> bool:
        """Let another member go on with the lane if the handler has left something in this one's context."""
        if contextvars.copy_context() == self._context:
            return False
        self._ready.appendleft(lane)
        self._put_aside(member)
        return True

    async def _run(
        self, member: Member, carried: Carried, work: EventWork | DeliveryWork, attempts: int
    ) -> Verdict | None:
        """Run a handler; None if its outcome is of no account: given up meanwhile, or the lease is lost."""
        row, lease = work.row, work.lease
        former = carried.registration.renamed_from
        receipt = HandlerRun(row.event_id, carried.name, lease.relay, lease.epoch, self._schema, former)
        run = member.run = Run(carried, row, attempts, receipt, member.task)
        verdict: Verdict | None = None
        try:
            verdict = await run_handler(run)
        except GivenBack:
            if lease is self.lease:
                raise
        finally:
            receipt.over = True
            member.run = None
            if run.detached:
                self._slow[carried.name] -= 1
        if lease is not self.lease:
            self._put_aside(member)
            return None
        return None if run.given_up else verdict

    # --- outcomes -----------------------------------------------------------------------------------

    def _wait(self, work: EventWork, handler: str, *, ordered: bool, takeovers: int = 0) -> None:
        work.lane.add(work, Outcome(handler, work.key_for(ordered=ordered), "waiting", takeovers=takeovers))

    def _settle(self, work: DeliveryWork, verdict: Verdict) -> None:
        self.in_hand -= 1
        outcome = _outcome(work.carried, "", verdict)
        outcome.attempts = outcome.attempts or work.attempts
        self._ledger.settle(work.row, outcome)

    def _late(self, work: EventWork, outcome: Outcome) -> None:
        """Write the outcome of a slow run: with its event, if that is in hand still."""
        if work.taken_to_mark:
            self._ledger.settle(work.row, outcome)
            return
        work.lane.remove(work, outcome.handler, self._claim)
        if outcome.status != "done" or outcome.error_message is not None:
            work.lane.add(work, outcome)

    def _give_back_run(self, member: Member, work: EventWork, carried: Carried) -> None:
        """Let a run that the relay has ended wait for another relay, with what is behind it in its lane."""
        if not member.aside:
            for each in (carried, *work.todo):
                self._wait(work, each.name, ordered=each.ordered)
            work.todo.clear()
            work.lane.items.popleft()
            self._ledger.finish(work)
            self._give_back_lane(work.lane)
            self._put_aside(member)
        elif work.taken_to_mark:
            self._ledger.give_back_delivery(work.row.event_id, carried.name)
        else:
            self._late(work, Outcome(carried.name, work.key_for(ordered=carried.ordered), "waiting"))

    def _give_back_lane(self, lane: Lane) -> None:
        for work in lane.items:
            self._ledger.give_back_event(work.row.position)
        self.in_hand -= len(lane.items)
        lane.unmarked -= len(lane.items)
        lane.items.clear()
        lane.walked = False

    def _give_back_turn(self, turn: Turn) -> None:
        for work in turn.items:
            self._ledger.give_back_delivery(work.row.event_id, work.carried.name)
        self.in_hand -= len(turn.items)
        turn.items.clear()

    # --- watching -----------------------------------------------------------------------------------

    def watch(self) -> None:
        """Let slow runs step aside, end those whose time is over, give up those that will not end."""
        now = time.monotonic()
        for member in list(self._members):
            if (run := member.run) is None:
                continue
            elapsed, limit = now - run.started, run.carried.timeout_seconds
            if not run.detached and elapsed > min(SLOW_SECONDS, limit):
                self._step_aside(member, run)
            if run.ended_for is None and elapsed > limit:
                run.end("timeout")
            elif run.ended_for == "timeout" and elapsed > limit + GRACE_SECONDS:
                self._give_up(member, run)
        self._muster()

    def _step_aside(self, member: Member, run: Run) -> None:
        run.detached = True
        self._slow[run.carried.name] = self._slow.get(run.carried.name, 0) + 1
        if not member.aside and isinstance(member.work, EventWork):
            work = member.work
            work.lane.add(
                work, Outcome(run.carried.name, work.key_for(ordered=run.carried.ordered), "leased")
            )
            self._ready.append(work.lane)
        self._put_aside(member)

    def _give_up(self, member: Member, run: Run) -> None:
        verdict, work = give_up(run), member.work
        if isinstance(work, EventWork):
            self._late(work, _outcome(run.carried, work.key_for(ordered=run.carried.ordered), verdict))
        elif work is not None:
            self._settle(work, verdict)
            if member.turn is not None:
                self._give_back_turn(member.turn)
        self._members.discard(member)
        self._given_up.add(member.task)
        self.changed.set()

    # --- ending -------------------------------------------------------------------------------------

    def idle(self) -> bool:
        """Whether nothing is in hand and nobody is at work."""
        return not self.in_hand and not self._members

    def longest_limit_seconds(self) -> float:
        """Return how long the running handlers may keep the event loop at the most."""
        # Asked from the keeper's thread, so over a copy.
        runs = [member.run for member in tuple(self._members)]
        limits = [run.carried.timeout_seconds for run in runs if run is not None]
        return max(limits, default=TIMEOUT_SECONDS) + GRACE_SECONDS

    def release(self) -> None:
        """Begin nothing more, and give back what has not begun."""
        self._stopping = True
        for lane in self._ready:
            if isinstance(lane, Lane):
                self._give_back_lane(lane)
            else:
                self._give_back_turn(lane)
        self._ready.clear()

    async def stop(self, grace_seconds: float) -> None:
        """Give back what has not begun; end what does not end by itself in time."""
        self.release()
        await self._wait_for_members(grace_seconds)
        await self.end_all()

    async def end_all(self) -> None:
        """Cancel every run, and wait until they have ended."""
        for member in self._members:
            if member.run is not None and member.run.ended_for is None:
                member.run.end("stop")
        await self._wait_for_members(GRACE_SECONDS)

    async def _wait_for_members(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._members and (left := until - time.monotonic()) > 0:
            # Again, since a lane may pass from one to another.
            await asyncio.wait([member.task for member in self._members], timeout=left)

    def forget(self) -> None:
        """Let go of everything: the lease is lost, and the work is somebody else's; a new lease is given next."""
        self._ready.clear()
        self._lanes.clear()
        self.in_hand = 0


def _outcome(carried: Carried, order_key: str, verdict: Verdict) -> Outcome:
    return Outcome(
        carried.name,
        order_key,
        verdict.status,
        verdict.attempts,
        0,
        carried.registration.on_dead,
        verdict.delay_seconds,
        verdict.error_message,
    )
