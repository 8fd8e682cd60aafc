"""Claiming: where a scan begins, how much it takes, and when there is reason for the next (R1, R4, R13)."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.postgres.connections import TROUBLE
from outbox_kernel.infrastructure.relay.due_turns import DueTurns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outbox_kernel.infrastructure.relay.crew import Crew
    from outbox_kernel.infrastructure.relay.in_hand import InHand
    from outbox_kernel.infrastructure.relay.line import Line
    from outbox_kernel.infrastructure.relay.presses import Presses
    from outbox_kernel.infrastructure.relay.roster import Ability, Roster
    from outbox_kernel.infrastructure.relay.store import DeliveryScan, Lease, OpenScan, Store
    from outbox_kernel.infrastructure.relay.work import ClaimedDelivery, ClaimedEvent

# A deep scan goes on where it was; this often one looks again where it began, for what has committed late.
FRONT_SECONDS = 0.25
# Where nothing can be cleaned up behind us, to begin at the front costs a look at all that was there. So with much
# behind it a scan begins where the front was a moment ago; what commits later than that waits for the next poll.
FRONT_POSITIONS_MAX = 20_000
LATE_SECONDS = 1.0
HEADS_MAX = 500
TURN_MAX = 20
# Most turns are a delivery or two, some are long: room for a few long ones.
TURNS_SHARE = 4
# Enough in hand to keep everybody busy for this long, and three times so while claims and marks are under way.
BATCH_SECONDS = 0.05
BATCHES_IN_HAND = 3


class LeaseLost(InfrastructureError):
    """Another relay has taken over, or may have: nothing in hand is ours any more."""


@attrs.define(eq=False)
class Claimer:
    """Takes from the outbox what the crew has room for."""

    store: Store
    hand: InHand
    crew: Crew
    presses: Presses
    roster: Roster
    batch_max: int
    concurrency: int
    poll_interval_seconds: float
    takes_events: bool = True
    """Whether it claims events, and not only deliveries of those that came through a queue."""
    rate: float = 0.0
    """Events and deliveries per second, lately."""
    events_due: bool = attrs.field(default=attrs.Factory(lambda self: self.takes_events, takes_self=True))
    turns: DueTurns = attrs.Factory(DueTurns)
    due_at: float | None = None
    """When a delivery's time comes, on the loop's monotonic clock."""
    suspects: bool = False
    _suspects_after: dict[str, str] = attrs.Factory(dict)
    _poll_at: float = 0.0
    _counted: int = 0
    _counted_at: float = attrs.field(factory=time.monotonic)
    _deep: int | None = None
    _front_at: float = 0.0
    _front: int = 0
    _front_next: int = 0
    _lowest: int = 0
    _settled_below: int = 0
    _writers_until: tuple[int, int] = (0, 0)
    """The first transaction that had not begun at some time, and the highest position then."""
    _moments: deque[tuple[float, int]] = attrs.Factory(deque)

    @property
    def batch(self) -> int:
        """How many to claim at once."""
        return min(self.batch_max, max(self.concurrency, int(self.rate * BATCH_SECONDS)))

    @property
    def room(self) -> int:
        """How many more may be in hand."""
        in_hand_max = max(BATCHES_IN_HAND * self.batch, 2 * self.concurrency)
        room = min(self.batch_max, in_hand_max - self.hand.count + self.hand.posting)
        # Where there are handlers, they do not wait for a broker: what is too much for it is left for later.
        return room if self.roster.has_handlers else min(room, self.presses.room)

    def note_done(self, works: int) -> None:
        """Measure how fast the crew is, so that neither it nor another relay waits for what is in hand here."""
        self._counted += works
        elapsed = time.monotonic() - self._counted_at
        if elapsed > BATCH_SECONDS:
            self.rate += (self._counted / elapsed - self.rate) / 2
            self._counted, self._counted_at = 0, time.monotonic()

    def look_everywhere(self) -> None:
        """Take every reason there may be for a claim."""
        self.turns.everywhere = True
        self._look()

    def look_on(self) -> None:
        """Take every reason; a look at all turns that is under way goes on."""
        self.turns.look_on()
        self._look()

    def _look(self) -> None:
        self.events_due = self.takes_events
        self._poll_at = time.monotonic() + self.poll_interval_seconds
        self.due_at = None  # the scan that begins now finds the next

    def next_look_in_seconds(self) -> float:
        """Return how long there is no reason to look everywhere by itself: a poll, or a delivery's time."""
        at = self._poll_at if self.due_at is None else min(self._poll_at, self.due_at)
        return max(0.0, at - time.monotonic())

    def next_reason_in_seconds(self) -> float:
        """Return how long there is nothing to do unless something is heard."""
        look = self.next_look_in_seconds()
        return min(look, self.turns.rest_seconds) if self.turns.scanning else look

    @property
    def may_scan(self) -> bool:
        """Whether to look at all turns, or on, by now."""
        return self.turns.scanning and not self.turns.rest_seconds

    def may_claim(self) -> bool:
        """Whether there is a reason for a claim that need not wait."""
        return self.events_due or self.suspects or self.turns.has_known or self.may_scan

    async def raise_front(self, line: Line) -> float | None:
        """Begin later scans at the lowest open position of the last full scan but one.

        Not of the last: what a transaction of a few seconds commits below it would wait for the next. Return
        how old the lowest is.
        """
        self._front, scan = self._front_next, await self.store.lowest_open(line)
        if scan.lowest is not None:
            self._front_next = scan.lowest
        self._lowest = self._front
        self._watch_writers(scan)
        return scan.age_seconds

    def _watch_writers(self, scan: OpenScan) -> None:
        """Note below which position nothing can become open, once all who wrote when it was the highest are done."""
        writer, last = self._writers_until
        if scan.oldest_transaction >= writer:
            self._settled_below = last if scan.lowest is None else min(last, scan.lowest)
            self._writers_until = scan.next_transaction, scan.last

    async def claim_events(self, line: Line, lease: Lease) -> int:
        """Claim events once; `events_due` stays true while there may be more."""
        begin = self._begin()
        limit = min(self.batch, self.room)
        claim = self.hand.begin_claim()
        # Before it is looked: whoever says meanwhile that there is more may be too late for this look.
        self.events_due = False
        try:
            rows, scan = await self.store.claim_events(
                *(line, lease),
                begin=begin,
                lowest=min(begin, self._lowest),
                limit=limit,
                names=self.roster.names_in_order,
                settled_below=self._settled_below,
            )
        except BaseException:
            self.events_due = True
            raise
        if not scan.held:
            raise LeaseLost("the relay's lease has run out")
        if scan.lowest is not None:
            self._lowest = scan.lowest
            self._remember(scan.lowest)
        if scan.revision != self.roster.revision:
            await self._learn_who_is_due(line, rows)
        self._go_on(scan.last if scan.more else None)
        lanes, posted = self.hand.take_events(rows, claim)
        self.presses.take(posted)
        self.crew.walk(lanes)
        return len(rows)

    async def _learn_who_is_due(self, line: Line, rows: Sequence[ClaimedEvent]) -> None:
        try:
            self.roster.subscribe(*await self.store.subscriptions(line))
        except TROUBLE:
            self.hand.give_back_claimed(rows)
            raise
        self.turns.everywhere = True  # one that was held may go on

    def _begin(self) -> int:
        now = time.monotonic()
        if self._deep is None or now - self._front_at > FRONT_SECONDS:
            self._front_at = now
            return self._late_front(now)
        return self._deep

    def _late_front(self, now: float) -> int:
        """Return where a scan begins that is to find what has committed late."""
        while len(self._moments) > 1 and now - self._moments[1][0] > LATE_SECONDS:
            self._moments.popleft()
        if not self._moments or self._lowest - self._front < FRONT_POSITIONS_MAX:
            return self._front
        at, lowest = self._moments[0]
        return max(self._front, lowest) if now - at > LATE_SECONDS else self._front

    def _remember(self, lowest: int) -> None:
        now = time.monotonic()
        if not self._moments or now - self._moments[-1][0] > LATE_SECONDS / 4:
            self._moments.append((now, lowest))

    def _go_on(self, last: int | None) -> None:
        self._deep = None if last is None else max(last + 1, self._deep or 0)
        self.events_due = self.events_due or last is not None

    async def claim_known(self, line: Line, lease: Lease) -> int:
        """Claim deliveries of turns that something was heard of."""
        abilities = self._abilities()
        known = self.turns.take_known(self._turns_max, {each.handler for each in abilities})
        if not known:
            return 0
        try:
            rows, scan = _held(await self.store.claim_turns(line, lease, abilities, known, turn_max=TURN_MAX))
        except BaseException:
            self.turns.everywhere = True
            raise
        # Where a suspect is, and what is too large for now, a look at all finds.
        self.turns.everywhere = self.turns.everywhere or scan.suspects or scan.more
        self._note_due(scan.next_in_seconds)
        self.turns.keep_in_use({*known} - {(row.handler, row.turn) for row in rows})
        return self._take(rows)

    async def claim_deliveries(self, line: Line, lease: Lease, *, suspects: bool = False) -> int:
        """Claim deliveries whose turn it is; `turns.scanning` stays true until all heads were looked at."""
        began, turns = time.monotonic(), self.turns
        after = self._suspects_after if suspects else turns.begin_scan()
        try:
            rows, scan = _held(
                await self.store.claim_deliveries(
                    *(line, lease, self._abilities()),
                    after=after,
                    heads_max=HEADS_MAX,
                    turns_max=self._turns_max,
                    turn_max=TURN_MAX,
                    suspects=suspects,
                )
            )
        except BaseException:
            turns.everywhere = True
            raise
        if not suspects:
            if scan.suspects:
                self.suspects, self._suspects_after = True, dict(after)
            goes_on = {**after, **scan.last} if scan.seen >= HEADS_MAX else {}
            turns.end_scan(began, goes_on, found=bool(rows))
            turns.everywhere = turns.everywhere or scan.more
            self._note_due(scan.next_in_seconds)
        return self._take(rows)

    def _take(self, rows: Sequence[ClaimedDelivery]) -> int:
        turns = self.hand.take_deliveries(rows)
        self.presses.take_turns(turn for turn in turns if turn.is_publishers)
        self.crew.walk(turn for turn in turns if not turn.is_publishers)
        return len(rows)

    @property
    def _turns_max(self) -> int:
        return max(1, self.room // TURNS_SHARE)

    def _abilities(self) -> list[Ability]:
        """Return what may run here and has room."""
        return [each for each in self.roster.abilities() if self._has_room_for(each.handler)]

    def _has_room_for(self, handler: str) -> bool:
        press = self.presses.each.get(handler)
        return self.crew.room_for(handler) > 0 if press is None else press.room > 0

    def _note_due(self, seconds: float | None) -> None:
        if seconds is None:
            return
        at = time.monotonic() + float(seconds)
        self.due_at = at if self.due_at is None else min(self.due_at, at)


def _held(
    found: tuple[list[ClaimedDelivery], DeliveryScan],
) -> tuple[list[ClaimedDelivery], DeliveryScan]:
    if not found[1].held:
        raise LeaseLost("the relay's lease has run out")
    return found
