"""A shift: everything that a relay has in memory, from the beginning of a lease to its end (R1, R3, R11).

A connection that breaks, or a lease that is lost, ends the shift. What was in hand is ended uncharged, nothing more is
written, and the next shift reads its cursors anew: nothing in memory outlives a shift.
"""

from __future__ import annotations

import asyncio
import time
from math import inf
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.relay.knowing import subscriptions_now
from outbox_kernel.infrastructure.relay.lease import LeaseLost
from outbox_kernel.infrastructure.relay.listening import EVERYTHING
from outbox_kernel.infrastructure.relay.running import GRACE_SECONDS
from outbox_kernel.kernel.handler_options import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outbox_kernel.infrastructure.relay.deliveries import Deliveries
    from outbox_kernel.infrastructure.relay.lines import Lines
    from outbox_kernel.infrastructure.relay.ownership import Ownership
    from outbox_kernel.infrastructure.relay.pausing import Pause, Pausing
    from outbox_kernel.infrastructure.relay.progress import Progress
    from outbox_kernel.infrastructure.relay.reader import Reader
    from outbox_kernel.infrastructure.relay.reading import Reading
    from outbox_kernel.infrastructure.relay.subscriber import Subscriber

WATCH_SECONDS = 0.1
# A relay that stops lets what is in hand end for so long, before it leaves the rest to others.
FINISH_SECONDS = 0.2


@attrs.define(eq=False)
class Shift:
    """The steps of a relay; who serves takes them all at once, who runs once one after the other."""

    lines: Lines
    subscribers: Mapping[str, Subscriber]
    ownership: Ownership
    reading: Reading
    progress: Progress
    deliveries: Deliveries
    poll_interval_seconds: float
    balance_seconds: float
    changed: asyncio.Event
    pausings: Sequence[Pausing] = ()
    to_read: asyncio.Event = attrs.Factory(asyncio.Event)
    """Set when there may be reason or room to read."""
    to_deliver: asyncio.Event = attrs.Factory(asyncio.Event)
    """Set when there may be reason or room to take deliveries."""
    to_balance: asyncio.Event = attrs.Factory(asyncio.Event)
    """Set when something may have changed hands."""
    lost: asyncio.Event = attrs.Factory(asyncio.Event)
    """Set by whoever finds out that the lease is lost."""
    pauses_changed: asyncio.Event = attrs.Factory(asyncio.Event)
    """Set when there may be other pauses to tell of."""
    pauses_of_others: Mapping[str, Pause] = attrs.Factory(dict)
    """What else stands still in this process."""
    _told: dict[str, Pause] | None = None
    """None: the row may say what was so under the last lease."""
    _poll_at: float = 0.0
    _turn_to_read: asyncio.Lock = attrs.Factory(asyncio.Lock)
    """Held while nothing may be read: what has killed relays before runs alone."""
    _runs_alone: bool = False
    _hurries: bool = False
    _writing: asyncio.Lock = attrs.Factory(asyncio.Lock)

    # --- beginning ----------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Ask for the brokers, and take what falls to this relay."""
        for pausing in self.pausings:
            pausing.open()
        await self.ownership.balance()

    # --- hearing ------------------------------------------------------------------------------------

    def hear(self, said: str) -> None:
        """Hear of a commit, or of an operator's mending."""
        self.reading.look()
        if said == EVERYTHING:
            self.deliveries.look_everywhere()
            self.to_balance.set()
        self.wake_up()

    def lose(self) -> None:
        """Hear that the lease is lost: nothing more begins under it."""
        self.lost.set()
        self.begin_nothing_more()
        self.wake_up()

    # --- the steps ----------------------------------------------------------------------------------

    async def read(self) -> None:
        """Read on if there is reason and room, else wait for them."""
        self.to_read.clear()
        if time.monotonic() >= self._poll_at:
            self._poll_at = time.monotonic() + self.poll_interval_seconds
            self.reading.look()
            self.deliveries.look_everywhere()
        async with self._turn_to_read:
            wanting = self.reading.wanting()
            if wanting:
                await self.read_for(wanting)
        if not wanting:
            await _wait(self.to_read, self._poll_at - time.monotonic())

    async def read_for(self, wanting: Sequence[Reader]) -> bool:
        """Read once; return whether it counts, and needs not be read again now that it is known who is due."""
        counts = await self.reading.step(wanting)
        if not counts:
            await self.learn()
        return counts

    async def deliver(self) -> None:
        """Take deliveries if there is reason, else wait for it."""
        self.to_deliver.clear()
        if self.deliveries.suspects:
            await self._run_suspect()
        elif self.deliveries.has_reason:
            await self.deliveries.take()
        else:
            await _wait(self.to_deliver, self._next_delivery_in_seconds())

    def _next_delivery_in_seconds(self) -> float:
        turns, now = self.deliveries.turns, time.monotonic()
        waits = [self._poll_at - now]
        if turns.scanning:
            waits.append(turns.rest_seconds)
        if self.deliveries.due_at is not None:
            waits.append(self.deliveries.due_at - now)
            if self.deliveries.due_at <= now:
                self.deliveries.look_everywhere()
                return 0.0
        return max(0.0, min(waits))

    async def _run_suspect(self) -> None:
        """Run what may have killed relays before, while nothing else is in hand that could be blamed for it."""
        async with self._turn_to_read:
            await self._empty_hands()
            await self._take_suspect()

    async def _take_suspect(self) -> int:
        self._runs_alone = True
        try:
            taken = await self.deliveries.take_suspects()
            await self.finish_in_hand()
        finally:
            self._runs_alone = False
        return taken

    async def _empty_hands(self) -> None:
        """Have nothing in hand; what waits for a bound of its handler is read again later, and nobody waits for it."""
        bounded = [each for each in self.subscribers.values() if each.is_bounded]
        for each in bounded:
            each.is_held = True
            each.note_pause()
        await self.finish_in_hand()
        for each in bounded:
            each.let_go()
            each.is_held = False
            each.note_pause()

    async def write(self) -> None:
        """Write what is due, else wait until something is."""
        self.changed.clear()
        if self.deliveries.has_unwritten:
            await self.write_settled()
        rest = self.progress.rest_seconds()
        if rest is None:
            await self.changed.wait()
        elif rest > 0:
            await _wait(self.changed, rest)
        else:
            await self.write_progress()

    async def write_settled(self) -> None:
        """Write how deliveries went."""
        async with self._writing:
            await self.deliveries.write()
        self.wake_up()

    async def write_progress(self) -> None:
        """Write the places behind what is done."""
        async with self._writing:
            left = await self.progress.write()
        if left:
            self.deliveries.hear_of_left(left)
        self.wake_up()

    async def watch(self) -> None:
        """Watch the runs now and then."""
        await asyncio.sleep(WATCH_SECONDS)
        self.watch_once()

    def watch_once(self) -> None:
        """Let what is slow step aside, and end what has had its time."""
        if self.lost.is_set():
            raise LeaseLost("the relay's lease is lost")
        self.lines.check()
        for pausing in self.pausings:
            if pausing.failure is not None:
                raise pausing.failure
        for subscriber in self.subscribers.values():
            subscriber.workers.watch()
        self.note_pauses()
        self.pauses_changed.set()
        self.changed.set()

    def note_pauses(self) -> None:
        """Let those stand still for whom something is away, and go on for whom it is back."""
        if self._runs_alone:
            return  # what goes on would run beside it
        changed = [subscriber.note_pause() for subscriber in self.subscribers.values()]
        if any(changed):
            self.deliveries.look_everywhere()
            self.wake_up()

    @property
    def pauses(self) -> dict[str, Pause]:
        """Who stands still, and why."""
        found = {name: each.doing.pause for name, each in self.subscribers.items()}
        return {**{name: pause for name, pause in found.items() if pause}, **self.pauses_of_others}

    async def tell_pauses(self) -> None:
        """Take note of who stands still, and write it down, each time that changes."""
        await self.pauses_changed.wait()
        self.pauses_changed.clear()
        self.note_pauses()
        pauses = self.pauses
        if pauses != self._told:
            await self.ownership.log.tell_pauses(pauses)
            self._told = pauses

    async def keep_balance(self) -> None:
        """Learn what is due, and take and give what has changed hands, now and then or when there is reason."""
        await _wait(self.to_balance, self.balance_seconds)
        self.to_balance.clear()
        await self.ownership.log.look_at_keys()
        await self.learn()
        while await self.ownership.balance():
            self.wake_up()
        await self.ownership.join()
        if self.ownership.is_leaving:
            await _wait(self.changed, WATCH_SECONDS)
            self.to_balance.set()

    async def learn(self) -> None:
        """Learn who is due for what, and who is paused."""
        found, revision = await subscriptions_now(self.ownership.log)
        if revision == self.reading.revision:
            return
        self.reading.revision = revision
        for name, subscriber in self.subscribers.items():
            subscriber.learn(found[name])
        self.to_balance.set()
        self.deliveries.look_everywhere()
        self.wake_up()

    def wake_up(self) -> None:
        """Look whether there is reason to read or to deliver."""
        self.to_read.set()
        self.to_deliver.set()

    def longest_limit_seconds(self) -> float:
        """Return how long the running handlers may keep the event loop at the most."""
        # Asked from the keeper's thread, so over copies.
        workers = [
            worker for each in tuple(self.subscribers.values()) for worker in tuple(each.workers.running)
        ]
        limits = [run.carried.timeout_seconds for worker in workers if (run := worker.run) is not None]
        return max(limits, default=TIMEOUT_SECONDS) + GRACE_SECONDS

    # --- one round ----------------------------------------------------------------------------------

    async def go_round(self) -> None:
        """Take each step once, and finish what is in hand then."""
        counts, deliveries = self.progress.counts, self.deliveries
        self.reading.look()
        deliveries.turns.look_on()
        await self.known()
        await self.learn()
        await self.ownership.balance()
        while not all([await self.read_for(wanting) for wanting in self.reading.groups()]):
            pass
        counts.claimed += await deliveries.take()
        await self.finish_in_hand()
        if deliveries.suspects:
            counts.claimed += await self._take_suspect()
        counts.note_outcomes(deliveries.take_ended())

    # --- finishing ----------------------------------------------------------------------------------

    async def known(self) -> None:
        """Return when it is known which brokers are there."""
        for pausing in self.pausings:
            await pausing.known.wait()
        self.note_pauses()

    @property
    def has_reason(self) -> bool:
        """Whether there may be something to do, now or after a rest."""
        return bool(
            self.reading.wanting()
            or self.deliveries.turns.scanning
            or self.deliveries.turns.has_known
            or self.deliveries.suspects
        )

    @property
    def is_idle(self) -> bool:
        """Whether nothing is at work, and nothing to be written but places that can wait."""
        return (
            not any(subscriber.has_in_hand for subscriber in self.subscribers.values())
            and not self.deliveries.has_unwritten
        )

    async def finish_in_hand(self, seconds: float = inf) -> None:
        """Watch and write until nothing is in hand, or the time is over."""
        until = time.monotonic() + seconds
        while not self.is_idle and (left := until - time.monotonic()) > 0:
            self.changed.clear()
            await self.write_all()
            if not self.is_idle:
                await _wait(self.changed, min(left, WATCH_SECONDS))
                self.watch_once()

    async def write_all(self) -> None:
        """Write everything that can be written now."""
        if self.deliveries.has_unwritten:
            await self.write_settled()
        await self.write_progress()

    async def let_go(self) -> None:
        """Write down how far those came who stand still, and have nothing of theirs in hand any more."""
        for subscriber in self.subscribers.values():
            if subscriber.stands_still:
                subscriber.let_go()
        await self.write_all()

    # --- ending -------------------------------------------------------------------------------------

    async def release(self, grace_seconds: float) -> None:
        """Begin nothing more; leave what has not ended to others, and let what runs end in time."""
        await self.finish_in_hand(min(FINISH_SECONDS, grace_seconds))
        self.begin_nothing_more()
        for subscriber in self.subscribers.values():
            subscriber.leave_rest()
            subscriber.step_all_aside()
        await self.write_all()
        await self.ownership.give_all()
        until = time.monotonic() + grace_seconds
        while not (self._are_at_rest or self._hurries) and (left := until - time.monotonic()) > 0:
            self.changed.clear()
            await _wait(self.changed, min(left, WATCH_SECONDS))
            self.watch_once()
            await self.write_all()
        await self.end()
        await self.write_all()

    def hurry(self) -> None:
        """Give no grace to what still runs."""
        self._hurries = True
        self.changed.set()

    @property
    def _are_at_rest(self) -> bool:
        return all(subscriber.workers.at_rest for subscriber in self.subscribers.values())

    def begin_nothing_more(self) -> None:
        """Let only what runs go on."""
        for subscriber in self.subscribers.values():
            subscriber.workers.is_stopping = True

    async def end(self) -> None:
        """End what runs: the lease is lost, or the time over."""
        self.begin_nothing_more()
        for pausing in self.pausings:
            await pausing.close()
        await asyncio.gather(
            *(subscriber.workers.end_all(GRACE_SECONDS) for subscriber in self.subscribers.values())
        )


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, which is set all the same when so much time has gone: each step looks for itself."""
    timer = asyncio.get_running_loop().call_later(max(0.0, seconds), event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
