"""A shift: everything that a relay has in memory, from the beginning of a lease to its end (R1, R3, R11).

A connection that breaks, or a lease that is lost, ends the shift. What was in hand is ended uncharged, nothing more is
written, and the next shift reads its cursors anew: nothing in memory outlives a shift.
"""

from __future__ import annotations

import asyncio
import json
import time
from math import inf
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.outbox.sql import leases
from outbox_kernel.infrastructure.relay.deliveries import Deliveries
from outbox_kernel.infrastructure.relay.lease import LeaseLost
from outbox_kernel.infrastructure.relay.limits import (
    ALONE_REST_SECONDS,
    ALONE_WAIT_SECONDS,
    FINISH_SECONDS,
    GRACE_SECONDS,
    SLOW_SECONDS,
    WATCH_SECONDS,
)
from outbox_kernel.infrastructure.relay.listener import EVERYTHING
from outbox_kernel.infrastructure.relay.ownership import Ownership
from outbox_kernel.infrastructure.relay.progress import Progress
from outbox_kernel.infrastructure.relay.reading import Reading
from outbox_kernel.infrastructure.relay.subscription import subscriptions_now
from outbox_kernel.infrastructure.waiting import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outbox_kernel.infrastructure.relay.cursor import Reader, Server
    from outbox_kernel.infrastructure.relay.log import Log
    from outbox_kernel.infrastructure.relay.outages import BrokerOutage, Pause
    from outbox_kernel.infrastructure.relay.run import Run
    from outbox_kernel.infrastructure.relay.settings import RelaySettings
    from outbox_kernel.infrastructure.relay.starting import Lines
    from outbox_kernel.infrastructure.relay.subscriber import Subscriber


@attrs.define(eq=False)
class Shift:
    """The steps of a relay; who serves takes them all at once, who runs once one after the other."""

    lines: Lines
    control: Log
    settings: RelaySettings
    server: Server
    revision: int
    takes_all: bool
    subscribers: dict[str, Subscriber] = attrs.Factory(dict)
    outages: list[BrokerOutage] = attrs.Factory(list)
    ownership: Ownership = attrs.field(init=False)
    reading: Reading = attrs.field(init=False)
    progress: Progress = attrs.field(init=False)
    deliveries: Deliveries = attrs.field(init=False)
    changed: Signal = attrs.Factory(Signal)
    """Set when something has ended."""
    to_write: Signal = attrs.Factory(Signal)
    """Set when there may be something to write."""
    to_read: Signal = attrs.Factory(Signal)
    """Set when there may be reason or room to read."""
    to_deliver: Signal = attrs.Factory(Signal)
    """Set when there may be reason or room to take deliveries."""
    to_balance: Signal = attrs.Factory(Signal)
    """Set when something may have changed hands."""
    to_watch: Signal = attrs.Factory(Signal)
    """Set when a connection has ended, or the lease is lost."""
    lost: asyncio.Event = attrs.Factory(asyncio.Event)
    """Set by whoever finds out that the lease is lost."""
    pauses_changed: Signal = attrs.Factory(Signal)
    """Set when there may be other pauses to tell of."""
    pauses_of_others: Mapping[str, Pause] = attrs.Factory(dict)
    """What else stands still in this process."""
    _told: dict[str, Pause] | None = None
    """None: the row may say what was so under the last lease."""
    _poll_at: float = 0.0
    _turn_to_read: asyncio.Lock = attrs.Factory(asyncio.Lock)
    """Held while nothing may be read: what has killed relays before runs alone."""
    _runs_alone: bool = False
    _alone_at: float = 0.0
    _hurries: bool = False
    _writing: asyncio.Lock = attrs.Factory(asyncio.Lock)

    def __attrs_post_init__(self) -> None:
        """Have parts, each with the connection for what it does."""
        control, subscribers = self.control, self.subscribers
        read, write = (attrs.evolve(control, line=line) for line in (self.lines.read, self.lines.write))
        self.ownership = Ownership(control, subscribers, self.takes_all, self.settings.channel)
        self.reading = Reading(read, subscribers, self.server, self.revision)
        self.progress = Progress(write, subscribers)
        self.deliveries = Deliveries(write, subscribers, self.to_deliver, self.to_write)
        for line in self.lines:
            line.on_gone = self.to_watch.set

    def hear(self, said: str) -> None:
        """Hear of a commit, or of an operator's mending."""
        self.reading.look()
        self.to_read.set()
        if said == EVERYTHING:
            self.deliveries.look_everywhere()
            self.to_balance.set()

    def lose(self) -> None:
        """Hear that the lease is lost: nothing more begins under it."""
        self.lost.set()
        self.begin_nothing_more()
        self.to_watch.set()

    async def read(self) -> None:
        """Read on if there is reason and room, else wait for them."""
        self.to_read.clear()
        if time.monotonic() >= self._poll_at:
            self._poll_at = time.monotonic() + self.settings.poll_interval_seconds
            self.reading.look()
            self.deliveries.look_everywhere()
        async with self._turn_to_read:
            wanting = self.reading.wanting()
            if wanting:
                await self.read_for(wanting)
        if not wanting:
            await self.to_read.wait(self._poll_at - time.monotonic())

    async def read_for(self, wanting: Sequence[Reader]) -> bool:
        """Read once; return whether it counts, and needs not be read again now that it is known who is due."""
        counts = await self.reading.step(wanting)
        if not counts:
            await self.learn()
        return counts

    async def deliver(self) -> None:
        """Take deliveries if there is reason, else wait for it."""
        self.to_deliver.clear()
        if self.deliveries.suspects and time.monotonic() >= self._alone_at:
            await self._run_suspect()
        elif (rest := self.deliveries.rest_seconds()) > 0:
            await self.to_deliver.wait(min(rest, ALONE_WAIT_SECONDS))  # at each poll who reads sets it
        else:
            await self.deliveries.take()

    async def _run_suspect(self) -> None:
        """Run what may have killed relays before, while nothing else is in hand that could be blamed for it."""
        async with self._turn_to_read:
            if not await self._empty_hands():
                self._alone_at = time.monotonic() + ALONE_REST_SECONDS
                return
            self._hold(())  # it may be one of theirs
            until = time.monotonic() + ALONE_WAIT_SECONDS
            while self.deliveries.suspects and time.monotonic() < until:
                await self._take_suspect()

    async def _take_suspect(self) -> int:
        self._runs_alone = True  # as it stays if this does not end well, since nothing goes on then
        taken = await self.deliveries.take_suspects()
        await self.finish_in_hand()
        self._runs_alone = False
        return taken

    async def _empty_hands(self) -> bool:
        """Have nothing in hand, or return False if it takes long: who is slow begins nothing more until it is done."""
        every = self.subscribers.values()
        self._hold([each for each in every if each.is_held or each.carried.is_bounded])
        await self.finish_in_hand(ALONE_WAIT_SECONDS)
        if not self.is_idle:
            self._hold([each for each in every if each.has_in_hand])
            return False
        for each in every:
            if each.is_held:
                each.let_go()  # what waits for a bound is read again later, and nobody waits for it
        return True

    def _hold(self, held: Sequence[Subscriber]) -> None:
        for each in self.subscribers.values():
            each.is_held = each in held
            each.note_pause()

    async def write(self) -> None:
        """Write what is due, else wait until something is."""
        self.to_write.clear()
        await self.write_settled()
        rest = self.progress.rest_seconds()
        if rest == 0:
            await self.write_progress()
        else:
            await self.to_write.wait(rest)

    async def write_settled(self) -> None:
        """Write how deliveries went."""
        if self.deliveries.has_unwritten:
            async with self._writing:
                left = await self.progress.send_again()  # with the deliveries that they may be of
                await self.deliveries.write()
            self.deliveries.hear_of_left(left)
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
        await self.to_watch.wait(self._watch_rest_seconds)
        self.to_watch.clear()
        self.watch_once()

    @property
    def _watch_rest_seconds(self) -> float:
        """While nothing runs and nothing stands still: until what begins now could be slow, or have had its time."""
        every = self.subscribers.values()
        if any(each.stands_still or not each.workers.at_rest for each in every):
            return WATCH_SECONDS
        limits = (each.carried.timeout_seconds for each in every)
        return max(WATCH_SECONDS, min((SLOW_SECONDS, *limits)))

    def watch_once(self) -> None:
        """Let what is slow step aside, and end what has had its time."""
        if self.lost.is_set():
            raise LeaseLost("the relay's lease is lost")
        for line in self.lines:
            line.check()
        for outage in self.outages:
            outage.check()
        for subscriber in self.subscribers.values():
            subscriber.workers.watch()
        self.note_pauses()
        # Each wakes up a step of its own, for nothing mostly.
        if self.pauses != self._told:
            self.pauses_changed.set()
        if self.progress.rest_seconds() == 0:
            self.to_write.set()

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
        found = {name: each.doing.outage.pause for name, each in self.subscribers.items()}
        return {**{name: pause for name, pause in found.items() if pause}, **self.pauses_of_others}

    async def tell_pauses(self) -> None:
        """Take note of who stands still, and write it down, each time that changes."""
        await self.pauses_changed.wait()
        self.pauses_changed.clear()
        self.note_pauses()
        pauses = self.pauses
        if pauses != self._told:
            told = [
                (name, {"reason": each.reason, "since": each.since.isoformat()})
                for name, each in pauses.items()
            ]
            await self.control.run(leases.TELL_PAUSES, pauses=json.dumps(dict(told)))
            self._told = pauses

    async def keep_balance(self) -> None:
        """Learn what is due, and take and give what has changed hands, now and then or when there is reason."""
        await self.to_balance.wait(self.settings.lease_seconds / 3)
        self.to_balance.clear()
        # What is in hand is forgotten, too, if its key was destroyed meanwhile (O6).
        await self.control.keys.look_again(self.control)
        await self.learn()
        while await self.ownership.balance():
            self.wake_up()
        await self.ownership.join()
        if self.ownership.is_leaving:
            await self.changed.wait(WATCH_SECONDS)
            self.to_balance.set()

    async def learn(self) -> None:
        """Learn who is due for what, and who is paused."""
        found, revision = await subscriptions_now(self.control)
        if revision == self.reading.revision:
            return
        self.reading.revision = revision
        for name, subscriber in self.subscribers.items():
            subscriber.learn(found[name])
        self.note_pauses()
        self.to_balance.set()
        self.deliveries.look_everywhere()
        self.wake_up()

    def wake_up(self) -> None:
        """Look whether there is reason to read or to deliver."""
        self.to_read.set()
        self.to_deliver.set()

    @property
    def runs(self) -> list[Run]:
        """What is at work."""
        every = tuple(self.subscribers.values())  # a copy: the keeper's thread asks, too
        return [run for each in every for _, run in each.workers.running]

    async def go_round(self) -> None:
        """Take each step once, and finish what is in hand then."""
        counts, deliveries = self.progress.counts, self.deliveries
        self.reading.look()
        deliveries.turns.look_on()
        for outage in self.outages:
            await outage.known.wait()
            outage.check()
        self.note_pauses()
        await self.learn()
        await self.ownership.balance()
        while not all([await self.read_for(wanting) for wanting in self.reading.groups()]):
            pass
        counts.claimed += await deliveries.take()
        await self.finish_in_hand()
        if deliveries.suspects:
            counts.claimed += await self._take_suspect()

    @property
    def has_reason(self) -> bool:
        """Whether there may be something to do, now or after a rest."""
        deliveries, turns = self.deliveries, self.deliveries.turns
        return bool(self.reading.wanting() or turns.scanning or turns.has_known or deliveries.suspects)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is at work, and nothing to be written but places that can wait."""
        in_hand = any(each.has_in_hand for each in self.subscribers.values())
        return not (in_hand or self.deliveries.has_unwritten)

    async def finish_in_hand(self, seconds: float = inf) -> None:
        """Watch and write until nothing is in hand, or the time is over."""
        until = time.monotonic() + seconds
        while not self.is_idle and (left := until - time.monotonic()) > 0:
            self.changed.clear()
            await self.write_all()
            if not self.is_idle:
                await self.changed.wait(min(left, WATCH_SECONDS))
                self.watch_once()

    async def write_all(self) -> None:
        """Write everything that can be written now."""
        await self.write_settled()
        await self.write_progress()

    async def let_go(self) -> None:
        """Write down how far those came who stand still, and have nothing of theirs in hand any more."""
        for subscriber in self.subscribers.values():
            if subscriber.stands_still:
                subscriber.let_go()
        await self.write_all()

    async def release(self, grace_seconds: float) -> None:
        """Begin nothing more; leave what has not ended to others, and let what runs end in time."""
        for outage in self.outages:  # cancelled with all else, they would pass for a failure
            await outage.close()
        await self.finish_in_hand(min(FINISH_SECONDS, grace_seconds))
        self.begin_nothing_more()
        for subscriber in self.subscribers.values():
            subscriber.leave_rest()
            subscriber.workers.step_all_aside()
        await self.write_all()
        await self.ownership.give_all()
        until = time.monotonic() + grace_seconds
        workers = [subscriber.workers for subscriber in self.subscribers.values()]
        while (left := until - time.monotonic()) > 0:
            if self._hurries or all(each.at_rest for each in workers):
                break
            self.changed.clear()
            await self.changed.wait(min(left, WATCH_SECONDS))
            self.watch_once()
            await self.write_all()
        await self.end()
        await self.write_all()

    def hurry(self) -> None:
        """Give no grace to what still runs."""
        self._hurries = True
        self.changed.set()

    def begin_nothing_more(self) -> None:
        """Let only what runs go on."""
        for subscriber in self.subscribers.values():
            subscriber.workers.is_stopping = True

    async def end(self) -> None:
        """End what runs: the lease is lost, or the time over."""
        self.begin_nothing_more()
        for outage in self.outages:
            await outage.close()
        await asyncio.gather(*(each.workers.end_all(GRACE_SECONDS) for each in self.subscribers.values()))
