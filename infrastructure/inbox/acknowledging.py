"""Acknowledging: what arrives goes into the outbox in batches, and out of the queue once that has committed (T3)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.brokers.received import Received, Unstorable, read
from outbox_kernel.infrastructure.inbox.limits import (
    BATCH_BYTES_MAX,
    BATCH_MAX,
    GATHER_EVENTS_MAX,
    GATHER_SECONDS,
)
from outbox_kernel.infrastructure.inbox.troubles import pause
from outbox_kernel.infrastructure.postgres.connections import TROUBLE
from outbox_kernel.infrastructure.telemetry.tracing import tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outbox_kernel.infrastructure.brokers.port import Incoming, Inlet
    from outbox_kernel.infrastructure.inbox.burying import Burying
    from outbox_kernel.infrastructure.inbox.storing import Storage
    from outbox_kernel.infrastructure.inbox.troubles import Trouble
    from outbox_kernel.infrastructure.outbox.own_connection import Line
    from outbox_kernel.infrastructure.telemetry.counting import QueueCounts


@attrs.define(eq=False)
class Intake:
    """Between an inlet and the outbox; what cannot be stored is left to be buried."""

    storage: Storage
    line: Line
    inlet: Inlet
    burying: Burying
    trouble: Trouble
    """With the database."""
    on_stored: Callable[[], None]
    counts: QueueCounts | None = None

    async def serve(self) -> None:
        """Store what arrives, until there is no more."""
        while arrived := [*await self.inlet.receive(BATCH_MAX)]:
            is_trickle = len(arrived) < GATHER_EVENTS_MAX
            while batch := first_of(arrived):
                await self._store_batch(batch)
                del arrived[: len(batch)]
            if is_trickle:
                # The first message is stored at once, those that trickle in after it together.
                await asyncio.sleep(GATHER_SECONDS)

    async def _store_batch(self, batch: Sequence[Incoming]) -> None:
        began = time.time_ns()
        events: list[Received] = []
        messages: list[Incoming] = []
        dead: list[tuple[Incoming, str]] = []
        for message in batch:
            try:
                events.append(read(message.message_id, message.headers, message.body))
            except Unstorable as error:
                dead.append((message, str(error)))
            else:
                messages.append(message)
        if events:
            refused = await self._store(events)
            self.on_stored()
            dead += [(messages[index], reason) for index, reason in refused.items()]
        unstored = {id(message) for message, _ in dead}
        stored = [message for message in batch if id(message) not in unstored]
        await self._settle(stored, dead)
        if self.counts is not None:
            self.counts.stored += len(stored)
        if (spans := tracing.spans()) is not None:
            spans.received(self.inlet.system, self.storage.queue, [each.headers for each in stored], began)

    async def _settle(self, stored: Sequence[Incoming], dead: Sequence[tuple[Incoming, str]]) -> None:
        """Acknowledge what is stored, and leave the rest to be buried."""
        if stored:
            await self.inlet.acknowledge(stored)
        if dead:
            self.burying.take(dead)
        if stored:
            self.burying.on_settled()

    async def _store(self, events: Sequence[Received]) -> dict[int, str]:
        """Store them as soon as the database does. They are kept: a queue may count how often it gives a message."""
        failures = 0
        while True:
            try:
                refused = await self.storage.store(self.line, events)
            except TROUBLE as error:
                if self.burying.ending.is_set():
                    raise
                failures += 1
                self.trouble.begin(error)
                await pause(failures, self.burying.ending)
            else:
                if failures:
                    self.trouble.end()
                return refused


def first_of(arrived: Sequence[Incoming]) -> Sequence[Incoming]:
    """Return what is stored next: the first message, and those behind it as far as they fit."""
    left = BATCH_BYTES_MAX
    for number, message in enumerate(arrived):
        left -= len(message.body)
        if left < 0:
            return arrived[: max(1, number)]
    return arrived
