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

from outbox_kernel.infrastructure.relay.lanes import Lane, Turn
from outbox_kernel.infrastructure.relay.running import GRACE_SECONDS, Run, give_up
from outbox_kernel.infrastructure.relay.walking import Member
from outbox_kernel.infrastructure.relay.work import EventWork
from outbox_kernel.kernel.handlers import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outbox_kernel.infrastructure.relay.in_hand import InHand

SLOW_SECONDS = 1.0


class Crew:
    """The members of a relay and the lanes before them."""

    def __init__(self, hand: InHand, *, concurrency: int, schema: str | None = None) -> None:
        self._hand = hand
        self._concurrency = concurrency
        self._schema = schema
        self._ready: deque[Lane | Turn] = deque()
        self._members: set[Member] = set()
        self._given_up: set[asyncio.Task[None]] = set()
        self._slow: dict[str, int] = {}
        self._counted = 0
        self._beginning: Member | None = None
        self.stopping = False
        self.failure: BaseException | None = None
        self.changed = asyncio.Event()
        # Every member begins in the context in which the relay was made, not in one that a handler left.
        self.context = contextvars.copy_context()

    # --- calling up members -------------------------------------------------------------------------

    def walk(self, lanes: Iterable[Lane | Turn]) -> None:
        """Have lanes walked, each by one member."""
        self._ready.extend(lanes)
        self._muster()

    def _muster(self) -> None:
        """Call up one member for the lanes that wait; it calls up the next when it begins.

        Where handlers wait for nothing, the first has walked all lanes before a second would have begun.
        """
        if not self._ready or self._beginning is not None or self._counted >= self._concurrency:
            return
        member = self._beginning = Member(self, self._hand, self._schema)
        self._members.add(member)
        self._counted += 1
        member.task = asyncio.get_running_loop().create_task(member.serve(), context=self.context.copy())
        # Not at the end of the coroutine: one that is cancelled before it begins never gets there.
        member.task.add_done_callback(lambda _: self._ended(member))

    def _ended(self, member: Member) -> None:
        self._beginning = None if self._beginning is member else self._beginning
        self.put_aside(member)
        self._members.discard(member)
        self._given_up.discard(member.task)
        self.changed.set()
        if member.task.cancelled():
            return
        self.failure = self.failure or member.task.exception()
        self._muster()

    # --- for members --------------------------------------------------------------------------------

    def next_lane(self, member: Member) -> Lane | Turn | None:
        """Give a member the next lane, if one waits."""
        self._beginning = None if self._beginning is member else self._beginning
        if not self._ready:
            return None
        lane = self._ready.popleft()
        self._muster()
        return lane

    def hand_on(self, lane: Lane | Turn) -> None:
        """Take a lane back from a member that cannot go on with it."""
        self._ready.appendleft(lane)

    def put_aside(self, member: Member) -> None:
        """Count a member no longer."""
        if not member.aside:
            member.aside = True
            self._counted -= 1

    def room_for(self, handler: str) -> int:
        """Return how many more slow runs of a handler are let in."""
        return self._concurrency - self._slow.get(handler, 0)

    def lets_in(self, handler: str) -> bool:
        """Whether a handler may run, for all that it has slow runs under way."""
        return not self._slow or self.room_for(handler) > 0

    def let_out(self, run: Run) -> None:
        """Take note that a run has ended; its place is free once what it has left in a thread has ended, too."""
        left = run.receipt.left_behind
        if left is not None and not left.done():
            if not run.detached:
                self._take_place(run.carried.name)
            left.add_done_callback(lambda _: self._free_place(run.carried.name))
        elif run.detached:
            self._free_place(run.carried.name)

    def _take_place(self, handler: str) -> None:
        self._slow[handler] = self._slow.get(handler, 0) + 1

    def _free_place(self, handler: str) -> None:
        self._slow[handler] -= 1
        self.changed.set()

    # --- watching -----------------------------------------------------------------------------------

    def watch(self) -> None:
        """Watch the runs; raise what a member has died of, since its lane would be held for ever."""
        if self.failure is not None:
            raise self.failure
        self.watch_runs()

    def watch_runs(self) -> None:
        """Let slow runs step aside, end those whose time is over, give up those that will not end."""
        now = time.monotonic()
        for member in list(self._members):
            if (run := member.run) is None:
                continue
            elapsed, limit = now - run.started, run.carried.timeout_seconds
            if not run.detached and elapsed > min(SLOW_SECONDS, limit):
                self._step_aside(member, run)
            elapsed -= run.receipt.waited_seconds(now)
            if run.ended_for is None and elapsed > limit:
                run.end("timeout")
            elif run.ended_for == "timeout" and elapsed > limit + GRACE_SECONDS:
                self._give_up(member, run)
        self._muster()

    def _step_aside(self, member: Member, run: Run) -> None:
        run.detached = True
        self._take_place(run.carried.name)
        if not member.aside and member.work is not None and member.work.lease is self._hand.lease:
            if isinstance(member.work, EventWork):
                self._hand.leave_running(member.work, run.carried)
                self._ready.append(member.work.lane)
            elif member.turn is not None:
                self._hand.set_aside(member.work, member.turn)
        self.put_aside(member)

    def _give_up(self, member: Member, run: Run) -> None:
        verdict, work = give_up(run), member.work
        if work is None or work.lease is not self._hand.lease:
            pass  # somebody else's by now
        elif isinstance(work, EventWork):
            self._hand.note_late(work, run.carried, verdict)
        else:
            self._hand.settle(work, verdict)
        self._members.discard(member)
        self._given_up.add(member.task)
        self.changed.set()

    def longest_limit_seconds(self) -> float:
        """Return how long the running handlers may keep the event loop at the most."""
        # Asked from the keeper's thread, so over a copy.
        runs = [member.run for member in tuple(self._members)]
        limits = [run.carried.timeout_seconds for run in runs if run is not None]
        return max(limits, default=TIMEOUT_SECONDS) + GRACE_SECONDS

    # --- ending -------------------------------------------------------------------------------------

    @property
    def at_rest(self) -> bool:
        """Whether nobody is at work."""
        return not self._members

    def release(self) -> None:
        """Begin nothing more, and give back what has not begun."""
        self.stopping = True
        for lane in self._ready:
            if isinstance(lane, Lane):
                self._hand.give_back_lane(lane)
            else:
                self._hand.give_back_turn(lane)
        self._ready.clear()

    async def end_all(self) -> None:
        """Cancel every run, and wait until they have ended; those that do not may commit no more."""
        for member in self._members:
            if member.run is not None and member.run.ended_for is None:
                member.run.end("stop")
        await self._wait_for_members(GRACE_SECONDS)
        for member in self._members:
            if member.run is not None:
                member.run.receipt.over = True

    async def _wait_for_members(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._members and (left := until - time.monotonic()) > 0:
            # Again, since a lane may pass from one to another.
            await asyncio.wait([member.task for member in self._members], timeout=left)

    def forget(self) -> None:
        """Let go of everything: the lease is lost, and the work is somebody else's."""
        self._ready.clear()
