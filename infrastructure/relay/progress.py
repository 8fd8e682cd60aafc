"""Progress: the places behind what is done, written down a few times a second (R2b)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.relay.limits import BURST_EVENTS, IDLE_SECONDS, WRITE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from outbox_kernel.infrastructure.outbox.delivery import Outcome
    from outbox_kernel.infrastructure.relay.cursor import Batch, Reader
    from outbox_kernel.infrastructure.relay.log import Log
    from outbox_kernel.infrastructure.relay.subscriber import Subscriber


@attrs.define
class Counts:
    """What a relay has done: events and deliveries, each for one handler or publisher."""

    claimed: int = 0
    delivered: int = 0
    left: int = 0
    settled: int = 0
    failed: int = 0
    dead: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Return both together."""
        return Counts(*(a + b for a, b in zip(attrs.astuple(self), attrs.astuple(other), strict=True)))

    def note_passed(self, events: int, left: int) -> None:
        """Count events that are passed, and how many of them have deliveries."""
        self.claimed += events
        self.delivered += events - left
        self.left += left

    def note_outcomes(self, outcomes: Iterable[Outcome]) -> None:
        """Count what deliveries came to."""
        for outcome in outcomes:
            self.settled += outcome.has_passed
            self.failed += outcome.status == "waiting" and outcome.error_message is not None
            self.dead += outcome.status == "dead"


@attrs.define(eq=False)
class Progress:
    """Finds which places are due to be written, and writes them."""

    log: Log
    subscribers: Mapping[str, Subscriber]
    counts: Counts = attrs.Factory(Counts)
    _written_at: float = 0.0

    def rest_seconds(self) -> float | None:
        """Return in how many seconds there is something to write; None: nothing is."""
        due = [self._due_at(reader, batches) for reader, batches in self._ended()]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _due_at(self, reader: Reader, batches: Sequence[Batch]) -> float:
        events = sum(len(batch.positions) for batch in batches)
        if not events:
            return self._written_at + IDLE_SECONDS
        if events >= BURST_EVENTS and reader.is_at_head and len(batches) == len(reader.batches):
            return self._written_at  # a burst is over, and nothing is to be waited for
        return self._written_at + WRITE_SECONDS

    async def write(self) -> list[Outcome]:
        """Write all places that are due, with their deliveries; return those."""
        ended = self._ended()
        if not ended:
            return []
        for batch in (each for _, batches in ended for each in batches):
            batch.is_being_written = True
        # One of each: an event that stands twice in the log of one source would fail the statement for all.
        every = (each for _, batches in ended for batch in batches for each in batch.left)
        left = [*{(each.row.event_id, each.handler): each for each in every}.values()]
        await self.log.move(ended, left)
        self._written_at = time.monotonic()
        for reader, batches in ended:
            reader.moved(batches)
            events = sum(len(batch.positions) for batch in batches)
            left_over = sum(len(batch.left) for batch in batches)
            subscriber = self.subscribers[reader.subscription]
            for counts in (self.counts, subscriber.doing.counts):
                if counts is not None:
                    counts.note_passed(events, left_over)
            subscriber.written(batches)
        self.counts.note_outcomes(left)
        return left

    def _ended(self) -> list[tuple[Reader, list[Batch]]]:
        return [
            (reader, batches)
            for subscriber in self.subscribers.values()
            for reader in subscriber.readers
            if (batches := reader.ended())
        ]
