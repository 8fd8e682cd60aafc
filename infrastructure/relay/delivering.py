"""Delivering: claim, let the crew work, mark, and begin anew where the lease was lost (R1, R3, R7b)."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.postgres.connections import TROUBLE
from outbox_kernel.infrastructure.relay.claiming import LeaseLost
from outbox_kernel.infrastructure.relay.in_hand import LOST
from outbox_kernel.infrastructure.relay.listening import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from outbox_kernel.infrastructure.relay.claiming import Claimer
    from outbox_kernel.infrastructure.relay.crew import Crew
    from outbox_kernel.infrastructure.relay.due_turns import TurnKey
    from outbox_kernel.infrastructure.relay.in_hand import InHand
    from outbox_kernel.infrastructure.relay.ledger import Ledger
    from outbox_kernel.infrastructure.relay.line import Line
    from outbox_kernel.infrastructure.relay.presses import Presses
    from outbox_kernel.infrastructure.relay.roster import Roster
    from outbox_kernel.infrastructure.relay.tenure import Tenure
    from outbox_kernel.infrastructure.relay.work import EventWork

_log = logging.getLogger("outbox.relay")

WATCH_SECONDS = 0.1
# Confirms of a broker come a few at a time, and to write each few would cost more than to publish them.
GATHER_SECONDS = 0.005
GATHERED_MIN = 100


@attrs.define(eq=False)
class Delivering:
    """The steps of a relay; who serves takes them all at once, who runs once one after the other."""

    lines: Mapping[str, Line]
    tenure: Tenure
    roster: Roster
    ledger: Ledger
    hand: InHand
    crew: Crew
    presses: Presses
    claimer: Claimer
    wake: asyncio.Event
    is_kept: bool = False
    """Whether a keeper renews the lease."""
    claiming: asyncio.Lock = attrs.Factory(asyncio.Lock)
    _write_at: float = 0.0

    # --- the lease ----------------------------------------------------------------------------------

    async def register(self) -> None:
        """Begin to live."""
        self.hand.lease = self.tenure.lease
        await self.tenure.register(self.roster.carried.values())
        self.hand.database = await self.tenure.store.database(self.tenure.line)
        self.presses.changed.set()  # the row is new, and says nothing of pauses
        await self.subscribe()
        self.tenure.regain()

    async def subscribe(self) -> None:
        """Be due for what is carried, and learn who else is.

        With each lease anew: while none was in force, an operator could retire what only this relay carries.
        """
        store, line = self.tenure.store, self.tenure.line
        await store.subscribe(line, self.roster.carried.values())
        self.roster.subscribe(*await store.subscriptions(line))

    async def renew_or_register(self) -> None:
        """Live on, or begin anew."""
        if self.tenure.lost.is_set() or not await self.tenure.renew():
            await self.begin_anew()

    async def begin_anew(self) -> None:
        """Let go of everything and take a new lease: the old one is lost, and so is what it held."""
        _log.warning("lease lost: others do what was in hand", extra={"epoch": self.tenure.lease.epoch})
        self.tenure.lose()  # until all of this is done, however often it is tried
        self.hand.lease = LOST  # so that nobody begins anything more
        self.crew.forget()
        self.presses.forget()
        await self.crew.end_all()
        # A write under way is waited for, then nothing awaits until the crew has the next lease.
        await self.ledger.forget()
        self.hand.forget()
        self.tenure.move_on()
        await self.register()
        await self.tenure.give_back_former()
        self.claimer.look_everywhere()

    async def replace_lost_lease(self) -> None:
        """Wait for the lease to be lost, and begin anew."""
        await self.tenure.lost.wait()
        async with self.claiming:
            await self.begin_anew()
        self.wake.set()

    # --- claiming -----------------------------------------------------------------------------------

    async def claim_or_wait(self) -> None:
        """Claim if there is a lease, room and a reason, else wait for them."""
        await self.tenure.in_force.wait()
        if self.claimer.room < self.claimer.batch / 2:
            self.crew.changed.clear()
            if self.claimer.room < self.claimer.batch / 2:
                await self.crew.changed.wait()
            return
        self.wake.clear()
        if self.claimer.next_look_in_seconds() <= 0:
            # However often it is woken for new events, or busy with them.
            self.claimer.look_everywhere()
        try:
            async with self.claiming:
                claimed = await self.claim()
        except TROUBLE:
            if self.lines["claim"].unanswered:
                # The server may have claimed for us what we shall never hear of: only a new epoch finds it.
                self.tenure.lose()
            raise
        if not claimed and not self.claimer.may_claim():
            await self._wait_for_reason()

    def has_reason(self) -> bool:
        """Whether there may be something to claim, now or after a rest."""
        return (
            self.claimer.events_due
            or self.claimer.turns.scanning
            or self.claimer.turns.has_known
            or self.claimer.suspects
        )

    async def claim(self) -> int:
        """Claim once what there is reason for; return how much it was."""
        claimer, line, lease = self.claimer, self.lines["claim"], self.tenure.lease
        claimed = 0
        if claimer.events_due:
            claimed += await claimer.claim_events(line, lease)
        if claimer.turns.has_known:
            claimed += await claimer.claim_known(line, lease)
        if claimer.may_scan:
            claimed += await claimer.claim_deliveries(line, lease)
        if claimer.suspects:
            claimed += await self._run_suspect()
        return claimed

    async def _run_suspect(self) -> int:
        """Run what may have killed relays before, while nothing else is in hand that could be blamed for it."""
        await self.finish_in_hand()
        claimed = await self.claimer.claim_deliveries(self.lines["claim"], self.tenure.lease, suspects=True)
        self.claimer.suspects = bool(claimed)
        await self.finish_in_hand()
        return claimed

    async def _wait_for_reason(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.claimer.next_reason_in_seconds()):
                await self.wake.wait()

    def wake_up(self, said: str) -> None:
        """Hear of a commit, or of an operator's mending."""
        self.claimer.events_due = self.claimer.takes_events
        if said == EVERYTHING:
            self.claimer.turns.everywhere = True
        self.wake.set()

    def hear_of(self, turns: Iterable[TurnKey]) -> None:
        """Hear of what was committed in this process."""
        self.claimer.turns.hear(turns)
        self.wake.set()

    # --- finishing ----------------------------------------------------------------------------------

    async def finish_in_hand(self) -> None:
        """Watch and write until nothing is in hand."""
        while True:
            if self.tenure.lost.is_set():
                raise LeaseLost("the relay's lease was lost while it waited for what it has in hand")
            self.crew.changed.clear()
            if self.ledger.unwritten.is_set():
                await self._write()
            elif self.is_idle:
                return
            else:
                await self._either_changes()
                self.crew.watch()
                self.presses.watch()
                if not self.is_kept and self.tenure.is_renewal_due:
                    await self.renew_or_register()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in hand and nobody is at work."""
        return not self.hand.count and self.crew.at_rest and self.presses.at_rest

    async def _either_changes(self) -> None:
        waits = [asyncio.ensure_future(each.wait()) for each in (self.crew.changed, self.ledger.unwritten)]
        try:
            await asyncio.wait(waits, timeout=WATCH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _write(self) -> None:
        line = self.lines["mark"]
        try:
            await self.ledger.write(line, self.tenure.lease)
        except TROUBLE:
            if self.ledger.releasing and line.unanswered:
                # What was given back may be claimed by us again when we come to say it once more.
                self.tenure.lose()
            raise
        self._hear_of_written()

    def _hear_of_written(self) -> None:
        changed, done = self.ledger.changed_turns, self.ledger.done_turns
        if done:
            self.ledger.done_turns = []
            self.claimer.turns.hear_of_done(done)
            self.wake.set()
        if changed:
            self.ledger.changed_turns = []
            self.hear_of(changed)

    async def write(self) -> None:
        """Wait for outcomes, and write them: at once, but those that trickle in from a broker together."""
        await self.ledger.unwritten.wait()
        rest = self._write_at - time.monotonic()
        if rest > 0 and self.ledger.size < GATHERED_MIN and not self.presses.at_rest:
            await asyncio.sleep(rest)
        await self._write()
        self._write_at = time.monotonic() + GATHER_SECONDS

    async def write_last(self) -> bool:
        """Write what there is; False if the database does not take it."""
        try:
            await self._write()
        except TROUBLE as error:
            _log.warning("work in hand is left for others to take over", exc_info=error)
            return False
        return True

    async def watch(self) -> None:
        """Watch the crew's runs and what is on its way to brokers, now and then."""
        await asyncio.sleep(WATCH_SECONDS)
        self.crew.watch()
        self.presses.watch()

    async def tell_pauses(self) -> None:
        """Write down which publishers are paused, each time that changes."""
        await self.presses.changed.wait()
        self.presses.changed.clear()
        try:
            await self.tenure.tell_pauses(self.presses.pauses)
        except BaseException:
            self.presses.changed.set()
            raise

    def note_pause(self) -> None:
        """Take note that a publisher was paused, or goes on: what waits for it is claimed no more, or again."""
        self.roster.held = {name for name, press in self.presses.each.items() if press.pausing.is_held}
        for press in self.presses.each.values():
            press.muster()
        self.presses.changed.set()
        self.claimer.turns.everywhere = True
        self.wake.set()

    def note_marked(self, works: Sequence[EventWork]) -> None:
        """Take note that outcomes are in the database."""
        self.hand.marked(works)
        self.crew.changed.set()
        self.claimer.note_done(len(works))

    # --- ending -------------------------------------------------------------------------------------

    async def release(self, grace_seconds: float) -> None:
        """Begin nothing more; let what runs end in time, and give back what does not."""
        until = time.monotonic() + grace_seconds
        self.crew.release()
        self.presses.release()
        answered = await self.write_last()
        while not (self.crew.at_rest and self.presses.at_rest) and time.monotonic() < until:
            self.crew.changed.clear()
            await self._either_changes()
            self.crew.watch_runs()
            if answered and self.ledger.unwritten.is_set():
                answered = await self.write_last()
        await self.crew.end_all()
        await self.presses.end_all()

    async def end(self) -> None:
        """End what runs, write what there is, and resign."""
        self.crew.release()
        self.presses.release()
        await self.crew.end_all()
        await self.presses.end_all()
        await self.write_last()
        await self.presses.close()
        try:
            await self.tenure.resign()
        except TROUBLE as error:
            _log.warning("the lease is left to run out", exc_info=error)
        self.tenure.move_on()
