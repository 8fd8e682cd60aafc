"""Publishing: what is for a broker goes there beside the crew's walk; no handler ever waits for it (T1, T4, R7).

A press serves one publisher. Within an aggregate it sends one event after the other's confirm, across aggregates many
at once. While the broker is not there the publisher is paused as a whole: what comes is written down as waiting,
uncharged and untried, and a probe finds out when to go on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.brokers.messages import message_of
from outbox_kernel.infrastructure.brokers.port import Outage, Published, Refused
from outbox_kernel.infrastructure.relay.lanes import Lane, Turn
from outbox_kernel.infrastructure.relay.running import DONE, refused
from outbox_kernel.infrastructure.relay.work import DeliveryWork, EventWork

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.brokers.port import Outcome
    from outbox_kernel.infrastructure.relay.in_hand import InHand
    from outbox_kernel.infrastructure.relay.pausing import Pausing
    from outbox_kernel.infrastructure.relay.roster import CarriedPublisher
    from outbox_kernel.infrastructure.relay.running import Verdict

_log = logging.getLogger("outbox.relay")

# Sent and not confirmed, at the most.
WINDOW = 200
# Taken and not confirmed: more would be no sooner at the broker, and other relays could not help.
TAKEN_MAX = 2_000
# What is not confirmed by then leaves the first pass, as a slow handler does.
SLOW_SECONDS = 1.0


@attrs.define(eq=False)
class Sending:
    """A message on its way."""

    work: EventWork | DeliveryWork
    began: float = attrs.field(factory=time.monotonic)
    aside: bool = False


@attrs.define(eq=False)
class Press:
    """Publishes for one publisher, unless it is paused."""

    carried: CarriedPublisher
    hand: InHand
    pausing: Pausing
    changed: asyncio.Event
    failure: BaseException | None = None
    _stopping: bool = False
    _taken: int = 0
    _tracks: dict[Lane, deque[EventWork]] = attrs.Factory(dict)
    """The events of each aggregate that are for this publisher and have not begun, in order."""
    _ready: deque[Lane | Turn] = attrs.Factory(deque)
    _sending: set[Sending] = attrs.Factory(set)
    _workers: set[asyncio.Task[None]] = attrs.Factory(set)

    @property
    def room(self) -> int:
        """How much more may be taken."""
        return TAKEN_MAX - self._taken

    @property
    def at_rest(self) -> bool:
        """Whether nothing is on its way or about to be."""
        return not self._taken and not self._workers

    # --- taking -------------------------------------------------------------------------------------

    def take(self, work: EventWork) -> None:
        """Publish an event out of its first pass, or leave that for later."""
        if self.pausing.pause is not None or self._stopping or self.room <= 0:
            self.hand.leave_post(work, self.carried)
            return
        self._taken += 1
        track = self._tracks.get(work.lane)
        if track is None:
            track = self._tracks[work.lane] = deque()
            self._ready.append(work.lane)
        track.append(work)
        self.muster()

    def take_turn(self, turn: Turn) -> None:
        """Publish deliveries of one aggregate."""
        self._taken += len(turn.items)
        self._ready.append(turn)
        self.muster()

    def muster(self) -> None:
        """Send what waits; until it is known whether the broker is there, that is kept."""
        if not self.pausing.is_known:
            return
        for _ in range(min(len(self._ready), WINDOW - len(self._workers))):
            task = asyncio.get_running_loop().create_task(self._work(), name="outbox-publish")
            self._workers.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._workers.discard(task)
        self.changed.set()
        if not task.cancelled():
            self.failure = self.failure or task.exception()
        self.muster()

    # --- publishing ---------------------------------------------------------------------------------

    async def _work(self) -> None:
        while self._ready:
            following = self._ready.popleft()
            if isinstance(following, Turn):
                await self._publish_turn(following)
            else:
                await self._publish_track(following)

    async def _publish_track(self, lane: Lane) -> None:
        track = self._tracks[lane]
        while track:
            work = track.popleft()
            if not self._may_send(work) or work.lane.blocks(self.carried.name, work.claim):
                self._leave(work)
                continue
            work.is_posted = True
            sending = Sending(work)
            outcome = await self._send(sending)
            if work.lease is self.hand.lease:
                self._taken -= 1
                self._note(sending, work, outcome)
        if self._tracks.get(lane) is track:
            del self._tracks[lane]

    def _may_send(self, work: EventWork | DeliveryWork) -> bool:
        if isinstance(work, EventWork) and work.is_given_back:
            return False
        return self.pausing.pause is None and not self._stopping and work.lease is self.hand.lease

    def _leave(self, work: EventWork) -> None:
        if work.lease is self.hand.lease:
            self._taken -= 1
            if not work.is_given_back:
                self.hand.leave_post(work, self.carried)

    async def _send(self, sending: Sending) -> Outcome:
        """Send it; whoever ends this in the middle does not know whether it arrived."""
        try:
            message = message_of(sending.work.row)
        except Exception as error:  # noqa: BLE001 - whatever is stored, it is that event's affair alone
            return Refused(
                f"it makes no message ({type(error).__name__}: {error}): look at its payload and headers"
            )
        self._sending.add(sending)
        try:
            outcome = await self.carried.outlet.publish(message)
        except asyncio.CancelledError:
            return Outage("told to stop before it was confirmed")
        except Exception as error:  # noqa: BLE001 - what an outlet fails over is that event's affair, too
            _log.exception(
                "the outlet of publisher %s failed over event %s",
                *(self.carried.name, sending.work.row.event_id),
                extra={"publisher": self.carried.name},
            )
            return Refused(
                f"its outlet failed over it ({type(error).__name__}: {error}): look at the relay's log"
            )
        finally:
            self._sending.discard(sending)
        if isinstance(outcome, Outage):
            self.pausing.begin(outcome)
        elif isinstance(outcome, Published):
            self.pausing.note_success()
        return outcome

    def _note(self, sending: Sending, work: EventWork, outcome: Outcome) -> None:
        verdict = self._verdict(work, 0, outcome)
        if sending.aside and verdict is None:
            self.hand.give_back_slow(work, self.carried)
        elif sending.aside and verdict is not None:
            self.hand.note_late(work, self.carried, verdict)
        elif verdict is None:
            self.hand.leave_post(work, self.carried)
        else:
            if verdict is not DONE:
                self.hand.note(work, self.carried, verdict)
            self.hand.posted(work)

    async def _publish_turn(self, turn: Turn) -> None:
        verdict: Verdict | None = DONE
        while turn.items and verdict is DONE and self._may_send(turn.items[0]):
            work = turn.items[0]
            outcome = await self._send(Sending(work))
            if work.lease is not self.hand.lease:
                return
            verdict = self._verdict(work, work.attempts, outcome)
            if verdict is not None:
                turn.items.popleft()
                self._taken -= 1
                self.hand.settle(work, verdict)
        if turn.items and turn.items[0].lease is self.hand.lease:
            self._taken -= len(turn.items)
            self.hand.give_back_turn(turn)

    def _verdict(self, work: EventWork | DeliveryWork, attempts: int, outcome: Outcome) -> Verdict | None:
        """Say what became of it; None if that is nobody's doing, and it is to be sent again."""
        if isinstance(outcome, Outage):
            return None
        if isinstance(outcome, Published):
            return DONE
        return refused(self.carried, work.row, attempts, outcome.reason)

    # --- watching and ending ------------------------------------------------------------------------

    def watch(self) -> None:
        """Let what the broker is slow with leave the first pass; raise what a worker has died of."""
        if failure := self.failure or self.pausing.failure:
            raise failure
        late = time.monotonic() - SLOW_SECONDS
        slow = [each for each in self._sending if each.began < late]
        for each in slow:
            self._step_aside(each)
        if slow or self.pausing.is_unknown_since(late):
            self._let_go()

    def _step_aside(self, sending: Sending) -> None:
        work = sending.work
        if sending.aside or not isinstance(work, EventWork) or work.lease is not self.hand.lease:
            return
        sending.aside = True
        self.hand.leave_running(work, self.carried)
        self.hand.posted(work)

    def _let_go(self) -> None:
        """Leave for later what is in its first pass and has not begun."""
        for track in self._tracks.values():
            while track:
                self._leave(track.popleft())

    def release(self) -> None:
        """Begin nothing more."""
        self._stopping = True
        self._let_go()
        for each in self._ready:
            if isinstance(each, Turn):
                self._taken -= len(each.items)
                self.hand.give_back_turn(each)
        self._ready.clear()
        self._tracks.clear()

    async def end_all(self) -> None:
        """End what is on its way."""
        for task in self._workers:
            task.cancel()
        while self._workers:
            await asyncio.wait(self._workers)

    def forget(self) -> None:
        """Let go of everything: the lease is lost, and what is on its way is of no account."""
        self._ready.clear()
        self._tracks.clear()
        self._taken = 0

    async def close(self) -> None:
        """Hang up."""
        await self.pausing.close()
        await self.carried.outlet.close()
