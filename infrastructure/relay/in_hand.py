"""What a relay has in hand: claimed, and with no outcome on its way into the database yet (R2, R4, R7b, R11)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.relay.lanes import Lanes, Turn
from outbox_kernel.infrastructure.relay.store import Lease
from outbox_kernel.infrastructure.relay.work import DeliveryWork, EventWork, Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from outbox_kernel.infrastructure.relay.lanes import Lane
    from outbox_kernel.infrastructure.relay.ledger import Ledger
    from outbox_kernel.infrastructure.relay.roster import (
        Carried,
        CarriedAny,
        CarriedPublisher,
        Due,
        Roster,
        Subscription,
    )
    from outbox_kernel.infrastructure.relay.running import Verdict
    from outbox_kernel.infrastructure.relay.work import ClaimedDelivery, ClaimedEvent

TAKEOVERS_OF_A_SUSPECT = 2
# What is in force while no lease is: nothing in hand was claimed under it.
LOST = Lease()


class InHand:
    """Work by its lanes and turns, until it is told to the ledger or given back."""

    lease: Lease
    database: str | None = None
    """Where the outbox is: what commits there takes a receipt."""

    def __init__(self, ledger: Ledger, roster: Roster) -> None:
        self._ledger = ledger
        self._roster = roster
        self._lanes = Lanes()
        self._claim = 0
        self.count = 0
        self.posting = 0
        """How many of these events wait for nothing but a broker."""

    # --- taking -------------------------------------------------------------------------------------

    def begin_claim(self) -> int:
        """Number a claim that is about to read the database."""
        self._claim += 1
        return self._claim

    def take_events(
        self, rows: Sequence[ClaimedEvent], claim: int
    ) -> tuple[Sequence[Lane], Sequence[EventWork]]:
        """Put claimed events into their lanes, in order; return the lanes that nobody walks yet, and what is posted."""
        fresh, posted = [], []
        for row in rows:
            due = self._roster.due(row["event_type"], row["event_version"])
            lane = self._lanes.of(row)
            work = EventWork(row, claim, list(due.run), lane, self.lease)
            work.posts = due.publish
            if row["not_before"] is not None:
                self._leave_for_its_time(work, due)
            elif due.leave or row["unsettled"] or row["takeovers"] >= TAKEOVERS_OF_A_SUSPECT:
                self._leave_out(work, {each.name: each.ordered for each in due.leave})
            if work.posts:
                work.posting = len(work.posts)
                posted.append(work)
            lane.items.append(work)
            lane.unmarked += 1
            if not lane.walked:
                lane.walked = True
                fresh.append(lane)
        self.count += len(rows)
        self._lanes.claimed(claim)
        return fresh, posted

    def _leave_for_its_time(self, work: EventWork, due: Due) -> None:
        """Let everybody who is due now have the event as a delivery, which runs from its moment on."""
        groups: tuple[Sequence[Carried | CarriedPublisher | Subscription], ...] = (
            due.run,
            due.publish,
            due.leave,
        )
        for name in [each.name for group in groups for each in group]:
            self.leave_waiting(work, name, ordered=False)
        work.todo.clear()
        work.posts = ()

    def _leave_out(self, work: EventWork, elsewhere: dict[str, bool]) -> None:
        """Write down who is not to run in the first pass: not here, not before its turn, not among others."""
        for name, ordered in elsewhere.items():
            self.leave_waiting(work, name, ordered=ordered)
        suspect = work.row["takeovers"] >= TAKEOVERS_OF_A_SUSPECT
        unsettled = set(work.row["unsettled"] or ())
        for carried in list(work.todo):
            if suspect or (carried.ordered and unsettled & {carried.name, carried.renamed_from}):
                work.todo.remove(carried)
                self.leave_waiting(
                    work,
                    carried.name,
                    ordered=carried.ordered,
                    takeovers=TAKEOVERS_OF_A_SUSPECT if suspect else 0,
                )
        # To publish runs nobody's code here: it is no suspect.
        for publisher in work.posts:
            if publisher.name in unsettled:
                work.posts = tuple(each for each in work.posts if each is not publisher)
                self.leave_waiting(work, publisher.name, ordered=True)

    def take_deliveries(self, rows: Sequence[ClaimedDelivery]) -> Collection[Turn]:
        """Put claimed deliveries into turns of their own."""
        turns: dict[tuple[str, str], Turn] = {}
        for row in rows:
            carried = self._roster.carried[row.handler]
            aside = carried.kind == "publisher"
            work = DeliveryWork(row, carried, row.attempts, self.lease, aside)
            turns.setdefault((row.turn, row.handler), Turn(deque())).items.append(work)
            self.count += not aside
        return turns.values()

    # --- outcomes -----------------------------------------------------------------------------------

    def leave_waiting(self, work: EventWork, handler: str, *, ordered: bool, takeovers: int = 0) -> None:
        """Leave a handler of an event for later, or for another relay."""
        work.lane.add(work, Outcome(handler, work.key_for(ordered=ordered), "waiting", takeovers=takeovers))

    def leave_post(self, work: EventWork, publisher: CarriedPublisher) -> None:
        """Leave a publisher of an event for later."""
        self.leave_waiting(work, publisher.name, ordered=True)
        self.posted(work)

    def posted(self, work: EventWork) -> None:
        """Take note that an event need not wait for a publisher any more."""
        work.posting -= 1
        behind = work.lane.behind
        while behind and not behind[0].posting:
            self.posting -= 1
            self._ledger.finish(behind.popleft())

    def leave_running(self, work: EventWork, carried: CarriedAny) -> None:
        """Let an event go on without a handler that is slow."""
        work.lane.add(work, Outcome(carried.name, work.key_for(ordered=carried.ordered), "leased"))

    def note(self, work: EventWork, carried: CarriedAny, verdict: Verdict) -> None:
        """Write down with its event how a handler's run ended."""
        work.lane.add(work, _outcome(carried, work.key_for(ordered=carried.ordered), verdict))

    def note_late(self, work: EventWork, carried: CarriedAny, verdict: Verdict) -> None:
        """Write down how a slow run ended."""
        self._late(work, _outcome(carried, work.key_for(ordered=carried.ordered), verdict))

    def _late(self, work: EventWork, outcome: Outcome) -> None:
        """Write the outcome of a slow run: with its event, if that is in hand still."""
        if work.taken_to_mark:
            self._ledger.settle(work.row, outcome)
            return
        work.lane.remove(work, outcome.handler, self._claim)
        if outcome.status != "done" or outcome.error_message is not None:
            work.lane.add(work, outcome)

    def settle(self, work: DeliveryWork, verdict: Verdict) -> None:
        """Write down how a delivery's run ended."""
        self.count -= not work.aside
        outcome = _outcome(work.carried, work.row.turn, verdict)
        outcome.attempts = outcome.attempts or work.attempts
        self._ledger.settle(work.row, outcome)

    def finish(self, work: EventWork) -> None:
        """Tell the ledger of an event whose first pass is over, once it is published and those before it are."""
        work.lane.items.popleft()
        if work.posting or work.lane.behind:
            work.lane.behind.append(work)
            self.posting += 1
        else:
            self._ledger.finish(work)

    def marked(self, works: Sequence[EventWork]) -> None:
        """Take note that outcomes are in the database."""
        self.count -= len(works)
        self._lanes.marked(works, self._claim)

    # --- giving back --------------------------------------------------------------------------------

    def give_back_rest(self, work: EventWork, carried: Carried) -> None:
        """Let a run that the relay has ended wait for another relay, with what is behind it in its lane."""
        for each in (carried, *work.todo):
            self.leave_waiting(work, each.name, ordered=each.ordered)
        work.todo.clear()
        self.finish(work)
        self.give_back_lane(work.lane)

    def give_back_slow(self, work: EventWork, carried: CarriedAny) -> None:
        """Let a slow run that the relay has ended wait for another relay."""
        if work.taken_to_mark:
            self._ledger.give_back_delivery(work.row.event_id, carried.name)
        else:
            self._late(work, Outcome(carried.name, work.key_for(ordered=carried.ordered), "waiting"))

    def give_back_lane(self, lane: Lane) -> None:
        """Give back the events that nobody has begun; what may be at a broker by now is left to its handlers."""
        last = max((number for number, work in enumerate(lane.items, start=1) if work.is_posted), default=0)
        for work in list(lane.items)[:last]:
            for carried in work.todo:
                self.leave_waiting(work, carried.name, ordered=carried.ordered)
            work.todo.clear()
            self.finish(work)
        for work in lane.items:
            work.is_given_back = True
            self._ledger.give_back_event(work.row.position)
        self.count -= len(lane.items)
        lane.unmarked -= len(lane.items)
        lane.items.clear()
        lane.walked = False

    def set_aside(self, work: DeliveryWork, turn: Turn) -> None:
        """Count a slow delivery no longer; what waits behind it is given back, since it would count for as long."""
        self.count -= 1
        work.aside = True
        self.give_back_turn(turn)

    def give_back_delivery(self, work: DeliveryWork) -> None:
        """Give back a delivery whose run the relay has ended."""
        self.count -= not work.aside
        self._ledger.give_back_delivery(work.row.event_id, work.carried.name)

    def give_back_claimed(self, rows: Sequence[ClaimedEvent]) -> None:
        """Give back events that were claimed and not taken."""
        for row in rows:
            self._ledger.give_back_event(row.position)

    def give_back_turn(self, turn: Turn) -> None:
        """Give back the deliveries that nobody has begun."""
        for work in turn.items:
            self._ledger.give_back_delivery(work.row.event_id, work.carried.name)
            self.count -= not work.aside
        turn.items.clear()

    def forget(self) -> None:
        """Let go of everything: the lease is lost."""
        self._lanes.clear()
        self.count = self.posting = 0


def _outcome(carried: CarriedAny, order_key: str, verdict: Verdict) -> Outcome:
    return Outcome(
        carried.name,
        order_key,
        verdict.status,
        verdict.attempts,
        0,
        carried.on_dead,
        verdict.delay_seconds,
        verdict.error_message,
    )
