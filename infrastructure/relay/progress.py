"""Progress: the places behind what is done, written down a few times a second (R2b)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.outbox.delivery import Counts
from outbox_kernel.infrastructure.relay.limits import BURST_EVENTS, IDLE_SECONDS, WRITE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outbox_kernel.infrastructure.outbox.delivery import Outcome
    from outbox_kernel.infrastructure.relay.cursor import Batch, Reader
    from outbox_kernel.infrastructure.relay.log import Log
    from outbox_kernel.infrastructure.relay.subscriber import Subscriber


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
        left = await self.send_again()
        ended = self._ended()
        return [*left, *await self._send(ended)] if ended else left

    async def send_again(self) -> list[Outcome]:
        """Write what was sent and nobody has heard of, just as it was: it may be there, and no more is taken for it."""
        sent = self._ended(is_sent=True)
        return await self._send(sent) if sent else []

    async def _send(self, ended: Sequence[tuple[Reader, Sequence[Batch]]]) -> list[Outcome]:
        for batch in (each for _, batches in ended for each in batches):
            batch.is_being_written = True
        # The first of each: an event that stands twice in the log of one source would fail the statement for all.
        every = [each for _, batches in ended for batch in batches for each in batch.left]
        left = [*{(each.row.event_id, each.handler): each for each in reversed(every)}.values()]
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

    def _ended(self, *, is_sent: bool = False) -> list[tuple[Reader, list[Batch]]]:
        return [
            (reader, batches)
            for subscriber in self.subscribers.values()
            for reader in subscriber.readers
            if (batches := [each for each in reader.ended() if each.is_being_written or not is_sent])
        ]
