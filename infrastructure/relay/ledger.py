"""Outcomes on their way into the database: written in batches, in the order in which they came about."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

    from outbox_kernel.infrastructure.relay.due_turns import TurnKey
    from outbox_kernel.infrastructure.relay.line import Line
    from outbox_kernel.infrastructure.relay.store import Lease, Store
    from outbox_kernel.infrastructure.relay.work import ClaimedEvent, EventWork, Outcome

BATCH_MAX = 2_000


@attrs.define
class Counts:
    """What a relay has done."""

    claimed: int = 0
    delivered: int = 0
    left: int = 0
    settled: int = 0
    failed: int = 0
    dead: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Return both together."""
        return Counts(*(a + b for a, b in zip(attrs.astuple(self), attrs.astuple(other), strict=True)))


@attrs.define(eq=False)
class Ledger:
    """What has an outcome and is not written yet."""

    store: Store
    on_marked: Callable[[Sequence[EventWork]], None] = attrs.field(init=False)
    on_settled: Callable[[int], None] = attrs.field(init=False)
    counts: Counts = attrs.Factory(Counts)
    changed_turns: list[TurnKey] = attrs.Factory(list)
    """Where something was written that may let a delivery run, or is to run at another time."""
    done_turns: list[TurnKey] = attrs.Factory(list)
    """Where a delivery was done."""
    unwritten: asyncio.Event = attrs.Factory(asyncio.Event)
    releasing: bool = False
    """Whether something is being given back, or was when its answer was lost."""
    _turn: asyncio.Lock = attrs.Factory(asyncio.Lock)
    _finished: list[EventWork] = attrs.Factory(list)
    _settled: list[tuple[ClaimedEvent, Outcome]] = attrs.Factory(list)
    _unrun_events: list[int] = attrs.Factory(list)
    _unrun_deliveries: list[tuple[UUID, str]] = attrs.Factory(list)

    @property
    def size(self) -> int:
        """How many outcomes there are to write."""
        return len(self._finished) + len(self._settled)

    def finish(self, work: EventWork) -> None:
        """Take an event whose first pass is over."""
        self._finished.append(work)
        self.unwritten.set()

    def settle(self, row: ClaimedEvent, outcome: Outcome) -> None:
        """Take the outcome of a delivery."""
        self._settled.append((row, outcome))
        self.unwritten.set()

    def give_back_event(self, position: int) -> None:
        """Take an event that is to be claimed again."""
        self._unrun_events.append(position)
        self.unwritten.set()

    def give_back_delivery(self, event_id: UUID, handler: str) -> None:
        """Take a delivery that is to be claimed again."""
        self._unrun_deliveries.append((event_id, handler))
        self.unwritten.set()

    async def forget(self) -> None:
        """Drop everything: the lease is lost, and so is the right to write."""
        async with self._turn:
            self._finished.clear()
            self._settled.clear()
            self._unrun_events.clear()
            self._unrun_deliveries.clear()
            self.unwritten.clear()
            self.releasing = False

    async def write(self, line: Line, lease: Lease) -> None:
        """Write all of it; what fails stays, to be written again."""
        async with self._turn:
            # Events before deliveries: a run that was slow has its delivery written with its event.
            while self._finished:
                await self._write_finished(line, lease)
            while batch := self._settled[:BATCH_MAX]:
                await self.store.settle(line, lease, batch)
                del self._settled[: len(batch)]
                self._count(outcome for _, outcome in batch)
                self.on_settled(len(batch))
            await self._write_released(line, lease)
            if not (self._finished or self._settled or self._unrun_deliveries or self._unrun_events):
                self.unwritten.clear()

    async def _write_released(self, line: Line, lease: Lease) -> None:
        self.releasing = bool(self._unrun_deliveries or self._unrun_events)
        while keys := self._unrun_deliveries[:BATCH_MAX]:
            await self.store.release_deliveries(line, lease, keys)
            del self._unrun_deliveries[: len(keys)]
        while positions := self._unrun_events[:BATCH_MAX]:
            await self.store.release_events(line, lease, positions)
            del self._unrun_events[: len(positions)]
        self.releasing = False

    async def _write_finished(self, line: Line, lease: Lease) -> None:
        batch = self._finished[:BATCH_MAX]
        delivered = [work.row.position for work in batch if not work.outcomes]
        left = [(work.row.position, list(work.outcomes)) for work in batch if work.outcomes]
        for work in batch:
            work.taken_to_mark = True
        await self.store.mark(line, lease, delivered, left)
        del self._finished[: len(batch)]
        self.counts.delivered += len(delivered)
        self.counts.left += len(left)
        for _, outcomes in left:
            self._count(outcomes)
        self.on_marked(batch)

    def _count(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self.counts.settled += outcome.status in ("done", "skipped")
            self.counts.failed += outcome.status == "waiting" and outcome.error_message is not None
            self.counts.dead += outcome.status == "dead"
            turns = self.done_turns if outcome.status == "done" else self.changed_turns
            turns.append((outcome.handler, outcome.order_key))
