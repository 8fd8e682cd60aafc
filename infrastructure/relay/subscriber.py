"""A subscriber: a handler or publisher that this relay carries, with all that it has in hand (R4, R5, R7).

Each stands alone: its own readers, its own workers, its own memory of what is unsettled. What differs between a handler
and a publisher is what it does with an event: `run` and `publishing`.
"""

from __future__ import annotations

from enum import Enum, auto
from operator import itemgetter
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.outbox.delivery import Outcome
from outbox_kernel.infrastructure.relay.limits import SUSPECT_TAKEOVERS
from outbox_kernel.infrastructure.relay.order import Order
from outbox_kernel.infrastructure.relay.retry import DONE, LEASED, WAITING, buried
from outbox_kernel.infrastructure.relay.workers import Work, Workers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Hashable, Iterable, Sequence

    from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
    from outbox_kernel.infrastructure.relay.cursor import Batch, Place, Reader
    from outbox_kernel.infrastructure.relay.deliveries import Deliveries
    from outbox_kernel.infrastructure.relay.publishing import Sending
    from outbox_kernel.infrastructure.relay.rate import Bounds
    from outbox_kernel.infrastructure.relay.retry import Verdict
    from outbox_kernel.infrastructure.relay.run import Handling
    from outbox_kernel.infrastructure.relay.subscription import CarriedAny, Subscription
    from outbox_kernel.infrastructure.relay.workers import Queue, Worker
    from outbox_kernel.infrastructure.waiting import Signal

_payload = itemgetter("payload")


class Route(Enum):
    """What becomes of events of one type and version."""

    NOT_DUE = auto()
    RUN = auto()
    LEAVE = auto()
    """The subscription is for them, and this process cannot run them: another can (R9)."""


@attrs.define(eq=False)
class Subscriber:
    """What this relay has in hand for one subscription."""

    carried: CarriedAny
    subscription: Subscription
    doing: Handling | Sending
    deliveries: Deliveries
    changed: Signal
    """Set when something has ended."""
    to_write: Signal
    """Set when there is something to write."""
    has_room: Signal
    """Set when there is room to read again."""
    bounds: Bounds
    readers: list[Reader] = attrs.Factory(list)
    read: int = 0
    """The number of the newest read that has begun."""
    stands_still: bool = False
    """What it needs is away, or another relay is to have it: nothing is read for it, and nothing written."""
    is_held: bool = False
    """It is to stand still for a moment: something else is to run alone."""
    workers: Workers = attrs.field(init=False)
    _half_batch: int = attrs.field(init=False)
    _order: Order = attrs.Factory(lambda self: Order(self.carried), takes_self=True)
    _routes: dict[tuple[str, int], Route] = attrs.Factory(dict)

    def __attrs_post_init__(self) -> None:
        """Have workers."""
        self._half_batch = self.bounds.batch_max // 2
        self.workers = Workers(
            *(self, self.bounds.workers_max, self.changed),
            # A batch that is slow is the handler's affair alone: what follows waits for it, without rows.
            steps_aside=self.carried.kind == "handler" and self.carried.batch is None,
            is_bounded=self.carried.is_bounded or self.carried.batch is not None,
            pacer=self.bounds.pacer,
        )

    @property
    def is_going(self) -> bool:
        """Whether it is to take anything on: nobody holds it, and it has not been ended."""
        return not (self.stands_still or self.subscription.paused or self.subscription.retired)

    @property
    def takes_deliveries(self) -> bool:
        """Whether it is to take any on: not while one event of what was read can find out how things stand."""
        if not self.is_going or self.workers.room <= 0:
            return False
        if self.carried.is_bounded and (not self.readers or self.workers.has_turns):
            return False  # they are for the relay that has the cursors, and for it when there is room
        return not (self.workers.is_probing and any(reader.in_hand for reader in self.readers))

    def learn(self, subscription: Subscription) -> None:
        """Take note of what the database says of it now."""
        self.subscription = subscription
        self._routes.clear()

    def _routed(self, row: LoggedEvent) -> Route:
        """Find out what becomes of such events."""
        kind = row["event_type"], row["event_version"]
        if not self.subscription.matches(kind[0]):
            found = Route.NOT_DUE
        else:
            found = Route.RUN if self.carried.can_run(*kind) else Route.LEAVE
        self._routes[kind] = found
        return found

    def take(self, reader: Reader, rows: Sequence[LoggedEvent], start: Place, end: Place) -> None:
        """Take events in the order of their positions, as far as they are this reader's."""
        is_all = reader.is_all and (start is reader.ahead or start == reader.ahead)
        mine = rows if is_all else [row for row in rows if reader.is_for(row)]
        batch, is_suspect, works = reader.begin(self.read, end), self._is_suspect(reader), []
        in_line = self.carried.ordered and self.carried.batch is None
        for row in mine:
            route = self._routes.get((row["event_type"], row["event_version"])) or self._routed(row)
            if route is Route.NOT_DUE:
                continue
            batch.positions.append(row["position"])
            if is_suspect or route is Route.LEAVE or self._order.must_leave(row):
                self._leave(batch, row, is_suspect=is_suspect)
            else:
                works.append(Work(row, row.ordered_in if in_line else self._key_of(row), batch))
        batch.open, batch.bytes = len(works), sum(map(len, map(_payload, mine)))
        if not works:
            self.to_write.set()
        self.workers.add(works)

    def _key_of(self, row: LoggedEvent) -> Hashable:
        """Return in whose queue it is done, if not in its aggregate's: that of all that may be one batch with it."""
        return None if self.carried.batch is None else row.shard % self.bounds.workers_max

    def _is_suspect(self, reader: Reader) -> bool:
        # To publish runs nobody's code here.
        return reader.takeovers >= SUSPECT_TAKEOVERS and self.carried.kind == "handler"

    def _leave(self, batch: Batch, row: LoggedEvent, *, is_suspect: bool = False) -> None:
        """Leave an event for later, for another relay, or for good."""
        outcome = self._outcome(row, WAITING if row.is_readable else buried(self.carried, row, 0))
        if is_suspect and row.is_readable:
            outcome.takeovers = SUSPECT_TAKEOVERS
        self._note(batch, outcome)

    def note_pause(self) -> bool:
        """Stand still while there is reason to; return whether that has changed."""
        if self._has_reason_to_stand == self.stands_still:
            return False
        if self.stands_still:
            self.go_on()
        else:
            self.stand_still()
        return True

    @property
    def _has_reason_to_stand(self) -> bool:
        if self.doing.outage.is_away or self.is_held or self.subscription.paused:
            return True
        # Two relays at once would have twice as much at work.
        return self.carried.is_bounded and any(reader.is_leaving for reader in self.readers)

    def stand_still(self) -> None:
        """Begin nothing more; what was read stays in hand, and what is at work ends by itself."""
        self.stands_still = True
        self.workers.let(0)
        for work in self.workers.drop_turns():
            self.given_back(work, is_late=False)

    def go_on(self) -> None:
        """Go on where it stands: after an outage with one event alone, until there is an answer to it."""
        self.stands_still = False
        if self.doing.outage.pause is not None:
            self.workers.probe()
        else:
            self.workers.let(self.bounds.workers_max)
        self.changed.set()

    def let_go(self) -> None:
        """Have nothing in hand while nothing is at work, so that it can be given to another relay."""
        if not self.workers.at_rest or any(each.ended() for each in self.readers):
            return
        dropped = self.workers.drop()
        for work in dropped:
            if work.batch is None:
                self.given_back(work, is_late=False)
        for reader in self.readers:
            reader.go_back(dropped)
        self._order.let_go(self.read)
        for outcome in (each for reader in self.readers for batch in reader.batches for each in batch.left):
            self._order.hold(outcome)

    @property
    def has_in_hand(self) -> bool:
        """Whether something is in hand that goes on by itself."""
        if not self.workers.at_rest:
            return True
        return any(reader.ended() if self.stands_still else reader.batches for reader in self.readers)

    def take_turn(self, turn: Queue) -> None:
        """Have deliveries done, or give them back if it stands still by now."""
        if not self.stands_still:
            self.workers.add_turn(turn)
            return
        for work in turn.works:
            self.given_back(work, is_late=False)

    def perform(self, worker: Worker, work: Work) -> Awaitable[Verdict | None]:
        """Do one work."""
        if work.batch is None and not work.row.is_readable:
            return _at_once(buried(self.carried, work.row, work.attempts))
        return self.doing(worker, work)

    def must_wait(self, work: Work) -> bool:
        """Whether something before it is unsettled, or slow runs take all the room; then it is left for later."""
        batch = work.batch
        if batch is None or not (self._order.keys or self.workers.room <= 0):
            return False
        if self.workers.room > 0 and not self._order.must_wait(work.row, batch.read):
            return False
        self._leave(batch, work.row)
        self._finish(batch)
        return True

    def settled(self, work: Work, verdict: Verdict, *, is_late: bool) -> None:
        """Take note of an end: with its batch, or as a delivery."""
        if self.workers.is_probing and self.doing.outage.pause is None:
            self.workers.let(self.bounds.workers_max)  # there is an answer
            self.deliveries.look_everywhere()
        batch = work.batch
        if batch is not None and not is_late:
            if verdict is not DONE:
                self._note(batch, self._outcome(work.row, verdict))
            self._finish(batch)
            return
        outcome = self._outcome(work.row, verdict)
        outcome.attempts = outcome.attempts or work.attempts
        if batch is None or batch.is_being_written:
            self.deliveries.settle(outcome)
        else:
            self._replace(batch, outcome)
        self.changed.set()

    def stepped_aside(self, work: Work) -> None:
        """Take note that a work is slow: it has a delivery from now on, and its batch need not wait."""
        if work.batch is not None:
            self._note(work.batch, self._outcome(work.row, LEASED))
            self._finish(work.batch)

    def given_back(self, work: Work, *, is_late: bool) -> None:
        """Take note that a work was ended by the relay, or has not begun, and is to be done again."""
        batch = work.batch
        if batch is None or (is_late and batch.is_being_written):
            self.deliveries.give_back(work.row, self.carried.name)
        elif is_late:
            self._replace(batch, self._outcome(work.row, WAITING))
        else:
            self._leave(batch, work.row)
            self._finish(batch)

    def leave_rest(self) -> None:
        """Leave everything that has not begun for others: the relay stops."""
        if self.workers.at_rest and (self.stands_still or self.carried.is_bounded):
            self.let_go()
            return
        for work in self.workers.drop():
            self.given_back(work, is_late=False)

    def written(self, batches: Iterable[Batch]) -> None:
        """Take note that the outcomes of batches are in the database."""
        for batch in batches:
            for outcome in batch.left:
                self._order.release(outcome, self.read)
        if self._order.keys:
            # The newest read may be under way: it began before this was written.
            oldest = min(
                (batch.read for reader in self.readers for batch in reader.batches), default=self.read
            )
            self._order.forget(oldest - 1)

    def _finish(self, batch: Batch) -> None:
        batch.open -= 1
        if not batch.open:
            self.changed.set()
            self.to_write.set()
        elif batch.open != self._half_batch:
            return
        self._note_room()

    def _note_room(self) -> None:
        if any(reader.is_due for reader in self.readers):
            self.has_room.set()

    def _note(self, batch: Batch, outcome: Outcome) -> None:
        batch.left.append(outcome)
        self._order.hold(outcome)

    def _replace(self, batch: Batch, outcome: Outcome) -> None:
        """Write another outcome with a batch than that it was slow."""
        [slow] = [each for each in batch.left if each.row is outcome.row]
        batch.left.remove(slow)
        self._order.hold(outcome)
        if outcome.status != "done" or outcome.error_message is not None:
            batch.left.append(outcome)
        # What is read from now on is not told of it by the database, and has nothing to wait for.
        self._order.release(slow, self.read)
        self._note_room()

    def _outcome(self, row: LoggedEvent, verdict: Verdict) -> Outcome:
        key = row.order_key if self.carried.ordered else None
        return Outcome(
            *(row, self.carried.name, key or str(row["event_id"]), verdict.status, verdict.attempts),
            on_dead=self.carried.on_dead,
            delay_seconds=verdict.delay_seconds,
            error_message=verdict.error_message,
        )


async def _at_once(verdict: Verdict) -> Verdict:
    return verdict
