"""Deliveries: exceptions, taken at their turn by any relay that can run them, and what became of them (R5, R7, R9)."""

from __future__ import annotations

import asyncio
import json
import time
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.outbox.sql.deliveries import (
    RELEASE_DELIVERIES,
    SETTLE_DELIVERIES,
    TAKE_DELIVERIES,
)
from outbox_kernel.infrastructure.relay.due_turns import DueTurns
from outbox_kernel.infrastructure.relay.lease import LeaseLost
from outbox_kernel.infrastructure.relay.roster import Ability
from outbox_kernel.infrastructure.relay.rows import DueDelivery, Outcome
from outbox_kernel.infrastructure.relay.works import turns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from outbox_kernel.infrastructure.outbox.sql.named import Statement
    from outbox_kernel.infrastructure.relay.due_turns import TurnKey
    from outbox_kernel.infrastructure.relay.log import Log
    from outbox_kernel.infrastructure.relay.rows import LoggedEvent
    from outbox_kernel.infrastructure.relay.subscriber import Subscriber

HEADS_MAX = 500
TURNS_MAX = 100
TURN_MAX = 20
IN_HAND_MAX = 1_000
BATCH_MAX = 2_000
CLAIM_BYTES_MAX = 16 * 1024 * 1024


@attrs.define(eq=False)
class Deliveries:
    """Takes deliveries whose turn it is, and writes how they went."""

    log: Log
    subscribers: Mapping[str, Subscriber]
    to_deliver: asyncio.Event = attrs.Factory(asyncio.Event)
    """Set when there is reason to look."""
    turns: DueTurns = attrs.Factory(DueTurns)
    due_at: float | None = None
    """When a delivery's time comes, on the loop's monotonic clock."""
    suspects: bool = False
    """Whether there are some that have killed relays before, and are to run while nothing else does."""
    in_hand: int = 0
    _ended: list[Outcome] = attrs.Factory(list)
    _settled: list[tuple[LoggedEvent, Outcome]] = attrs.Factory(list)
    _given_back: list[tuple[LoggedEvent, str]] = attrs.Factory(list)
    _suspects_after: dict[str, str] = attrs.Factory(dict)

    # --- what subscribers say -----------------------------------------------------------------------

    def settle(self, row: LoggedEvent, outcome: Outcome) -> None:
        """Write how a delivery went."""
        self._settled.append((row, outcome))

    def give_back(self, row: LoggedEvent, handler: str) -> None:
        """Write that a delivery is to be run again."""
        self._given_back.append((row, handler))

    # --- taking -------------------------------------------------------------------------------------

    @property
    def has_reason(self) -> bool:
        """Whether there may be something to take by now."""
        return self.turns.has_known or (self.turns.scanning and not self.turns.rest_seconds)

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
        known = self.turns.take_known(TURNS_MAX, {each.handler for each in self._abilities()})
        if not known:
            return 0
        try:
            rows, scan = await self._claim({}, known, suspects=False)
        except BaseException:
            self.turns.everywhere = True
            raise
        # Where a suspect is, and what is too large for now, a look at all finds.
        self.turns.everywhere = self.turns.everywhere or scan["suspects"] or scan["more"]
        self._note_due(scan["next_in_seconds"])
        self.turns.keep_in_use({*known} - {(row.handler, row.turn) for row in rows})
        return self._begin(rows)

    async def _scan(self) -> int:
        began, turns = time.monotonic(), self.turns
        after = turns.begin_scan()
        try:
            rows, scan = await self._claim(after, [], suspects=False)
        except BaseException:
            turns.everywhere = True
            raise
        if scan["suspects"]:
            self.suspects, self._suspects_after = True, dict(after)
        goes_on = {**after, **scan["last"]} if scan["seen"] >= HEADS_MAX else {}
        turns.end_scan(began, goes_on, found=bool(rows))
        turns.everywhere = turns.everywhere or scan["more"]
        self._note_due(scan["next_in_seconds"])
        return self._begin(rows)

    async def _claim(
        self, after: Mapping[str, str], known: Sequence[TurnKey], *, suspects: bool
    ) -> tuple[list[DueDelivery], Any]:
        abilities = self._abilities()
        runnable = [] if known else sorted({each.handler for each in abilities})
        handlers, types, versions, former, on_dead, _ = _columns(abilities, 6)
        known_handlers, known_keys = _columns(known, 2)
        *rows, report = await self.log.run(
            TAKE_DELIVERIES,
            DueDelivery,
            handlers=handlers,
            types=types,
            versions=versions,
            former=former,
            on_dead=on_dead,
            run_code=sorted({each.handler for each in abilities if each.runs_code}),
            runnable=runnable,
            after=[after.get(handler, "") for handler in runnable],
            known_handlers=known_handlers,
            known_keys=known_keys,
            suspects=suspects,
            heads_max=0 if known else HEADS_MAX,
            turns_max=1 if suspects else TURNS_MAX,
            turn_max=1 if suspects else TURN_MAX,
            bytes_max=CLAIM_BYTES_MAX,
        )
        scan = json.loads(report["report"])
        if not scan["held"]:
            raise LeaseLost("the relay's lease has run out")
        await self.log.keys.give(rows, self.log)
        rows.sort(key=attrgetter("place"))
        return rows, scan

    def _begin(self, rows: Sequence[DueDelivery]) -> int:
        self.in_hand += len(rows)
        for row in rows:
            if row.is_skipped:
                self.settle(row, Outcome(row, row.handler, row.turn, "skipped", attempts=row.attempts))
        for handler, turns in turns_of([row for row in rows if not row.is_skipped]).items():
            for turn in turns:
                self.subscribers[handler].take_turn(turn)
        return len(rows)

    def _abilities(self) -> list[Ability]:
        """Return what may run here and has room."""
        if self.in_hand >= IN_HAND_MAX:
            return []
        return [
            Ability(
                *(each.name, pattern, version, each.carried.renamed_from, each.carried.on_dead),
                runs_code=each.carried.kind == "handler",
            )
            for each in self.subscribers.values()
            if each.takes_deliveries
            for pattern, version in each.carried.abilities.items()
        ]

    def _note_due(self, seconds: float | None) -> None:
        if seconds is not None:
            at = time.monotonic() + float(seconds)
            self.due_at = at if self.due_at is None else min(self.due_at, at)

    # --- writing ------------------------------------------------------------------------------------

    @property
    def has_unwritten(self) -> bool:
        """Whether there is something to write."""
        return bool(self._settled or self._given_back)

    async def write(self) -> None:
        """Write all of it."""
        while batch := self._settled[:BATCH_MAX]:
            await self._write_settled(batch)
            del self._settled[: len(batch)]
            self.in_hand -= sum(isinstance(row, DueDelivery) for row, _ in batch)
            self._hear_of_written(outcome for _, outcome in batch)
        while given_back := self._given_back[:BATCH_MAX]:
            event_ids, handlers = _columns([(row["event_id"], handler) for row, handler in given_back], 2)
            await self._run_fenced(RELEASE_DELIVERIES, event_ids=event_ids, handlers=handlers)
            del self._given_back[: len(given_back)]
            self.turns.everywhere = True
            self.in_hand -= sum(isinstance(row, DueDelivery) for row, _ in given_back)

    def take_ended(self) -> list[Outcome]:
        """Return what was written since this was last asked."""
        ended, self._ended = self._ended, []
        return ended

    async def _write_settled(self, batch: Sequence[tuple[LoggedEvent, Outcome]]) -> None:
        await self._run_fenced(
            SETTLE_DELIVERIES,
            event_ids=[row["event_id"] for row, _ in batch],
            handlers=[each.handler for _, each in batch],
            states=[each.status for _, each in batch],
            attempts=[each.attempts for _, each in batch],
            on_dead=[each.on_dead for _, each in batch],
            delays=[each.delay_seconds for _, each in batch],
            errors=[each.error_message for _, each in batch],
        )

    async def _run_fenced(self, statement: Statement, **values: Any) -> None:
        if not await self.log.run(statement, **values):
            raise LeaseLost("the relay's lease has run out")

    def _hear_of_written(self, outcomes: Iterable[Outcome]) -> None:
        every = list(outcomes)
        self._ended.extend(every)
        done = [(each.handler, each.order_key) for each in every if each.status in ("done", "skipped")]
        changed = [(each.handler, each.order_key) for each in every if each.status in ("waiting", "dead")]
        if done:
            self.turns.hear_of_done(done)
        if changed:
            self.turns.hear(changed)

    def hear_of_left(self, outcomes: Iterable[Outcome]) -> None:
        """Take note of deliveries that were written with a place."""
        changed = [(each.handler, each.order_key) for each in outcomes if each.status != "done"]
        if changed:
            self.turns.hear(changed)


def _columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Turn rows into the arrays that `unnest` takes."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
