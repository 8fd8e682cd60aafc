"""Deliveries: exceptions, taken at their turn by any relay that can run them, and what became of them (R5, R7, R9).

To look at all turns is to hop over the whole index, with all in it that was settled and cannot be cleaned up behind
somebody's long snapshot (R13). So that is done at each poll, when somebody asks for it, and else now and then; of what
was stored or settled in this process the turn is known, and it alone is looked at.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import islice
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.outbox.delivery import Counts, DueDelivery, Outcome, settled
from outbox_kernel.infrastructure.outbox.sql.deliveries import (
    RELEASE_DELIVERIES,
    SETTLE_DELIVERIES,
    TAKE_DELIVERIES,
)
from outbox_kernel.infrastructure.outbox.sql.named import arrays
from outbox_kernel.infrastructure.relay.lease import check_held
from outbox_kernel.infrastructure.relay.limits import (
    BATCH_MAX,
    DELIVERY_BYTES_MIN,
    HEADS_MAX,
    IN_HAND_BYTES_MAX,
    KNOWN_MAX,
    READ_BYTES_MAX,
    REST_SECONDS_MAX,
    REST_TIMES,
    TURN_MAX,
    TURNS_MAX,
)
from outbox_kernel.infrastructure.relay.workers import Queue, Work
from outbox_kernel.infrastructure.waiting import Signal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
    from outbox_kernel.infrastructure.relay.log import Log
    from outbox_kernel.infrastructure.relay.subscriber import Subscriber
    from outbox_kernel.infrastructure.relay.subscription import CarriedAny

# The handler, and the key within which it takes one after the other.
TurnKey = tuple[str, str]


@attrs.define(eq=False)
class DueTurns:
    """What is to be looked at next."""

    everywhere: bool = True
    """Whether somebody wants a look at all to begin, and at once."""
    _heard: bool = False
    """Whether one is to begin after a rest."""
    _after: dict[str, str] = attrs.Factory(dict)
    """Where a look at all goes on, by handler; one that has come to its end there waits for the others."""
    _known: dict[TurnKey, None] = attrs.Factory(dict)
    _in_use: set[TurnKey] = attrs.Factory(set)
    """Of which something was heard, and nothing could be taken: what is in hand may have been before it."""
    _was_fruitful: bool = False
    _rest_until: float = 0.0

    @property
    def scanning(self) -> bool:
        """Whether a look at all is under way, or to begin."""
        return self.everywhere or self._heard or bool(self._after)

    @property
    def has_known(self) -> bool:
        """Whether something was heard of a turn."""
        return bool(self._known)

    @property
    def rest_seconds(self) -> float:
        """Return how long to look at nothing but what is known."""
        if self.everywhere or self._after or (self._was_fruitful and not self._known):
            return 0.0
        return max(0.0, self._rest_until - time.monotonic())

    def hear(self, turns: Iterable[TurnKey]) -> None:
        """Take note that something was committed about these: they come first, then what others may have left."""
        self._known.update(dict.fromkeys(turns))
        self._heard = True
        if len(self._known) > KNOWN_MAX:
            self._known.clear()
            self.everywhere = True

    def hear_of_done(self, turns: Iterable[TurnKey]) -> None:
        """Take note that nothing of these is in hand any more: only where more was heard of is there reason to look."""
        for each in turns:
            self._heard = True
            if each in self._in_use:
                self._in_use.discard(each)
                self._known[each] = None

    def keep_in_use(self, turns: Iterable[TurnKey]) -> None:
        """Take note of those that were looked at in vain."""
        self._in_use.update(turns)
        if len(self._in_use) > KNOWN_MAX:
            self._in_use.clear()

    def take_known(self, most: int, runnable: Collection[str]) -> list[TurnKey]:
        """Take some; what cannot be run here now is found by a look at all when it can."""
        turns = list(islice(self._known, most))
        for each in turns:
            del self._known[each]
        return [each for each in turns if each[0] in runnable]

    def begin_scan(self) -> Mapping[str, str]:
        """Begin a look at all, or go on with it; return after which turns."""
        if not self._after:
            # Who says from now on that there is more may be too late for this look: he causes another.
            self.everywhere = self._heard = False
        return self._after

    def end_scan(self, began: float, after: dict[str, str], *, found: bool) -> None:
        """Take note of how far a step of it came, and for how long it was under way."""
        self._after = after
        now = time.monotonic()
        self._was_fruitful = found
        self._rest_until = now + min(REST_TIMES * (now - began), REST_SECONDS_MAX)

    def look_on(self) -> None:
        """Begin a look at all, unless one is under way."""
        self.everywhere = self.everywhere or not self._after


@attrs.define(eq=False)
class Deliveries:
    """Takes deliveries whose turn it is, and writes how they went."""

    log: Log
    subscribers: Mapping[str, Subscriber]
    to_deliver: Signal = attrs.Factory(Signal)
    """Set when there is reason to look."""
    to_write: Signal = attrs.Factory(Signal)
    """Set when there is something to write."""
    turns: DueTurns = attrs.Factory(DueTurns)
    due_at: float | None = None
    """When a delivery's time comes, on the loop's monotonic clock."""
    suspects: bool = False
    """Whether there are some that have killed relays before, and are to run while nothing else does."""
    counts: Counts = attrs.Factory(Counts)
    _settled: list[Outcome] = attrs.Factory(list)
    _given_back: list[tuple[LoggedEvent, str]] = attrs.Factory(list)
    _suspects_after: dict[str, str] = attrs.Factory(dict)
    _bytes: Counter[str] = attrs.Factory(Counter)
    """Of what is in hand, by handler: one that is slow takes no other one's room."""

    def settle(self, outcome: Outcome) -> None:
        """Write how a delivery went."""
        self._settled.append(outcome)
        self.to_write.set()

    def give_back(self, row: LoggedEvent, handler: str) -> None:
        """Write that a delivery is to be run again."""
        self._given_back.append((row, handler))
        self.to_write.set()

    def rest_seconds(self) -> float:
        """Return for how long there is nothing to take; none: there may be something by now."""
        now = time.monotonic()
        if self.due_at is not None and self.due_at <= now:
            self.look_everywhere()
        if self.turns.has_known:
            return 0.0
        rest = self.turns.rest_seconds if self.turns.scanning else inf
        return rest if self.due_at is None else min(rest, self.due_at - now)

    def look_everywhere(self) -> None:
        """Look at all turns, and at once."""
        self.turns.everywhere = True
        self.due_at = None
        self.to_deliver.set()

    async def take(self) -> int:
        """Take what there is reason to look for; return how many."""
        taken = 0
        if self.turns.has_known:
            taken += await self._take_known()
        if self.turns.scanning and not self.turns.rest_seconds:
            taken += await self._scan()
        return taken

    async def take_suspects(self) -> int:
        """Take one of those that may have killed relays."""
        rows, _ = await self._claim(self._suspects_after, [], suspects=True)
        self.suspects = bool(rows)
        return self._begin(rows)

    async def _take_known(self) -> int:
        known = self.turns.take_known(TURNS_MAX, {each.name for each in self._able()})
        if not known:
            return 0
        rows, scan = await self._claim({}, known)
        # Where a suspect is, and what is too large for now, a look at all finds.
        self.turns.everywhere = self.turns.everywhere or scan["suspects"] or scan["more"]
        self._note_due(scan["next_in_seconds"])
        self.turns.keep_in_use({*known} - {(row.handler, row.turn) for row in rows})
        return self._begin(rows)

    async def _scan(self) -> int:
        began, turns = time.monotonic(), self.turns
        after = turns.begin_scan()
        rows, scan = await self._claim(after, [])
        if scan["suspects"]:
            self.suspects, self._suspects_after = True, dict(after)
        goes_on = {**after, **scan["last"]} if scan["seen"] >= HEADS_MAX else {}
        turns.end_scan(began, goes_on, found=bool(rows))
        turns.everywhere = turns.everywhere or scan["more"]
        self._note_due(scan["next_in_seconds"])
        return self._begin(rows)

    async def _claim(
        self, after: Mapping[str, str], known: Sequence[TurnKey], *, suspects: bool = False
    ) -> tuple[list[DueDelivery], Any]:
        able = self._able()
        runnable = [] if known else sorted(each.name for each in able)
        abilities = [
            (each.name, pattern, version, each.renamed_from, each.on_dead)
            for each in able
            for pattern, version in each.abilities.items()
        ]
        try:
            rows, scan = await self.log.report(
                TAKE_DELIVERIES,
                DueDelivery,
                **arrays(("handlers", "types", "versions", "former", "on_dead"), abilities),
                **arrays(("known_handlers", "known_keys"), known),
                run_code=sorted(each.name for each in able if each.kind == "handler"),
                runnable=runnable,
                after=[after.get(handler, "") for handler in runnable],
                suspects=suspects,
                heads_max=0 if known else HEADS_MAX,
                turns_max=1 if suspects else TURNS_MAX,
                turn_max=1 if suspects else TURN_MAX,
                bytes_max=READ_BYTES_MAX,
            )
            await self.log.keys.give(rows, self.log)
        except BaseException:
            self.turns.everywhere = True
            raise
        rows.sort(key=attrgetter("place"))
        return rows, scan

    def _begin(self, rows: Sequence[DueDelivery]) -> int:
        for row in rows:
            self._bytes[row.handler] += _bytes_of(row)
            if row.is_skipped:
                self.settle(Outcome(row, row.handler, row.turn, "skipped", attempts=row.attempts))
        for handler, turn in _turns_of(row for row in rows if not row.is_skipped):
            self.subscribers[handler].take_turn(turn)
        return len(rows)

    def _able(self) -> list[CarriedAny]:
        """Return what may run here and has room."""
        able = (each.carried for each in self.subscribers.values() if each.takes_deliveries)
        return [each for each in able if self._bytes[each.name] < IN_HAND_BYTES_MAX]

    def _note_due(self, seconds: float | None) -> None:
        if seconds is not None:
            at = time.monotonic() + float(seconds)
            self.due_at = at if self.due_at is None else min(self.due_at, at)

    @property
    def has_unwritten(self) -> bool:
        """Whether there is something to write."""
        return bool(self._settled or self._given_back)

    async def write(self) -> None:
        """Write all of it."""
        while batch := self._settled[:BATCH_MAX]:
            check_held(await self.log.run(SETTLE_DELIVERIES, **settled(batch)))
            del self._settled[: len(batch)]
            self._let_go((each.row, each.handler) for each in batch)
            self.counts.note_outcomes(batch)
            self.turns.hear_of_done(each.turn for each in batch if each.has_passed)
            self.hear_of_left(each for each in batch if not each.has_passed)
        while given_back := self._given_back[:BATCH_MAX]:
            given = [(row["event_id"], handler) for row, handler in given_back]
            check_held(await self.log.run(RELEASE_DELIVERIES, **arrays(("event_ids", "handlers"), given)))
            del self._given_back[: len(given_back)]
            self.turns.everywhere = True
            self._let_go(given_back)

    def _let_go(self, gone: Iterable[tuple[LoggedEvent, str]]) -> None:
        for row, handler in gone:
            if self._bytes[handler] >= IN_HAND_BYTES_MAX:
                self.turns.everywhere = True  # meanwhile its turns were passed over
            self._bytes[handler] -= _bytes_of(row)

    def hear_of_left(self, outcomes: Iterable[Outcome]) -> None:
        """Take note of deliveries that were written with a place."""
        changed = [each.turn for each in outcomes if each.status != "done"]
        if changed:
            self.turns.hear(changed)


def _bytes_of(row: LoggedEvent) -> int:
    """Return what it counts for as a delivery; what was read counts with its batch."""
    return max(len(row["payload"]), DELIVERY_BYTES_MIN) if isinstance(row, DueDelivery) else 0


def _turns_of(rows: Iterable[DueDelivery]) -> list[tuple[str, Queue]]:
    """Sort leased deliveries into turns, each with its handler."""
    turns: dict[TurnKey, Queue] = {}
    for row in rows:
        turn = turns.setdefault((row.handler, row.turn), Queue(None, is_turn=True))
        turn.works.append(Work(row, None, None, row.attempts))
    return [(handler, turn) for (handler, _), turn in turns.items()]
