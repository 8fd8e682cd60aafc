"""The consumer: takes what arrives in queues, stores it, and acknowledges it once that has committed (T3, T4).

Each queue has an inlet of its own: connect, serve, fail, pause and begin anew, whatever becomes of other queues.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.brokers.port import BrokerRefusal
from outbox_kernel.infrastructure.cancelling import raise_failure
from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.inbox.acknowledging import Intake
from outbox_kernel.infrastructure.inbox.burying import Burying
from outbox_kernel.infrastructure.inbox.limits import (
    DRAIN_SECONDS_MAX,
    LOOK_SECONDS,
    PEACE_SECONDS,
    PREFETCH_MESSAGES,
)
from outbox_kernel.infrastructure.inbox.storing import Storage
from outbox_kernel.infrastructure.inbox.troubles import Trouble, pause, together
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.relay.outages import QUEUE
from outbox_kernel.infrastructure.waiting import Signal
from outbox_kernel.kernel.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from outbox_kernel.infrastructure.brokers.port import Broker, Inlet
    from outbox_kernel.infrastructure.brokers.topology import Topology
    from outbox_kernel.infrastructure.master_keys import MasterKeys
    from outbox_kernel.infrastructure.relay import OutboxRelay
    from outbox_kernel.infrastructure.relay.outages import Pause
    from outbox_kernel.infrastructure.telemetry.counting import QueueCounts
    from outbox_kernel.infrastructure.telemetry.metrics import Metrics

_log = logging.getLogger("outbox.consumer")


class Receiving:
    """One queue's consumer, on an inlet of its own: what it fails over stops no other queue."""

    def __init__(
        self,
        inlet: Inlet,
        storage: Storage,
        line: Line,
        *,
        stopping: Signal,
        on_stored: Callable[[], None],
        on_change: Callable[[Receiving], None],
        counts: QueueCounts | None = None,
    ) -> None:
        self.queue = storage.queue
        self._inlet, self._line = inlet, line
        self._stopping = stopping
        self._ending = Signal()
        self._on_change = on_change
        self._connecting, self._storing, burying = (Trouble(self.queue, self._changed) for _ in range(3))
        self._troubles = (self._connecting, self._storing, burying)
        self._burying = Burying(self.queue, inlet, burying, self._ending, self._begin_anew, counts)
        self._intake = Intake(storage, line, inlet, self._burying, self._storing, on_stored, counts)
        self._failures = 0
        self._peace_at = math.inf
        self.is_consuming = False
        """Whether the broker knows us as the queue's consumer."""

    @property
    def trouble(self) -> BaseException | None:
        """What the queue is stuck over at the moment."""
        return next((each.error for each in self._troubles if each.error is not None), None)

    @property
    def pause(self) -> Pause | None:
        """All that is wrong with it, and since when."""
        return together(self._troubles)

    async def is_empty(self) -> bool:
        """Whether we consume the queue, and nothing is left in it."""
        try:
            return self.is_consuming and await self._inlet.is_empty()
        except BrokerRefusal:
            return False  # the connection is lost, and made again

    async def run(self) -> None:
        """Take until told to stop, through every loss of the broker or the database."""
        try:
            while not self._stopping.is_set():
                await self._take_once()
                await pause(self._failures, self._stopping)
        finally:
            await self._inlet.close()
            await self._line.close()

    async def _take_once(self) -> None:
        self._peace_at = math.inf
        try:
            await self._consume()
            # An intake that ends without a word is no reason to hurry.
            self._failures += 1
        except Exception as error:  # noqa: BLE001 - what nobody thought of, too: other queues go on
            # That it consumes is no success: what it takes may be what it fails over, each time again.
            if self._peace_at < time.monotonic():
                self._begin_anew()
            self._failures += 1
            self._connecting.begin(error)
        finally:
            self.is_consuming = False
            # With what was wrong with it, it comes again.
            await self._inlet.put_back()
            self._burying.let_go()
            self._storing.end(may_come_back=True)
            self._changed()

    async def _consume(self) -> None:
        """Consume the queue until it is lost, or told to stop."""
        await self._inlet.open()
        self._connecting.end(may_come_back=True)
        self._peace_at = time.monotonic() + PEACE_SECONDS
        self.is_consuming = True
        self._changed()
        _log.info("consuming", extra={"action": "consumer.consuming", "queue": self.queue})
        await self._serve()

    async def _serve(self) -> None:
        self._ending.clear()
        stop = asyncio.create_task(self._stopping.wait(), name=f"outbox-consume-stop-{self.queue}")
        storing = asyncio.create_task(self._intake.serve(), name=f"outbox-consume-{self.queue}")
        burying = asyncio.create_task(self._burying.serve(), name=f"outbox-bury-{self.queue}")
        try:
            await asyncio.wait([stop, storing, burying], return_when=asyncio.FIRST_COMPLETED)
            if self._stopping.is_set():
                await self._drain(storing)
        finally:
            for task in (stop, storing, burying):
                task.cancel()
            await asyncio.wait([stop, storing, burying])
        for task in (storing, burying):
            if not task.cancelled():
                task.result()

    async def _drain(self, storing: asyncio.Task[None]) -> None:
        """Store what has been taken; without a database or a broker it stays with the broker, and comes again."""
        self._ending.set()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS_MAX):
                    await self._inlet.finish()
                    await asyncio.wait([storing])
                    await self._burying.drain()
        except BrokerRefusal as refusal:
            _log.warning(
                "%s; what was not acknowledged comes again",
                refusal,
                extra={"action": "consumer.unacknowledged", "queue": self.queue},
            )

    def _begin_anew(self) -> None:
        self._failures = 0
        self._connecting.forget()

    def _changed(self) -> None:
        self._on_change(self)


class QueueStuck(InfrastructureError):
    """A queue cannot be emptied, over something that has no sentence of its own."""


class Consumer:
    """Empties queues into the outbox of its own database, until it is told to stop; each queue for itself.

    A queue's consumer is single and active: of several processes one is given its messages, the others stand by.
    """

    def __init__(  # noqa: PLR0913 - options, each by its name
        self,
        broker: Broker,
        topology: Topology,
        queues: Sequence[str],
        engine: AsyncEngine,
        *,
        schema: str | None = None,
        relay: OutboxRelay,
        prefetch: int = PREFETCH_MESSAGES,
        master_keys: MasterKeys | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._relay = relay
        self._stopping = Signal()
        inlets = {each: broker.inlet(each, topology, prefetch=prefetch) for each in queues}
        self._receivings = [
            Receiving(
                inlet,
                Storage(queue, schema, master_keys),
                Line(engine),
                stopping=self._stopping,
                on_stored=relay.look,
                on_change=self._note,
                counts=None if metrics is None else metrics.of_queue(queue, system=inlet.system),
            )
            for queue, inlet in inlets.items()
        ]
        self.consuming = asyncio.Event()
        """Set while the broker knows us as the consumer of every queue."""

    def stop(self) -> None:
        """Take no more; what has been taken is stored."""
        self._stopping.set()

    async def emptied(self) -> None:
        """Return when nothing is left in the queues; where one is stuck, raise why, once the others are empty."""
        while not self._stopping.is_set():
            found = [each.trouble or await each.is_empty() for each in self._receivings]
            if all(found):
                for receiving, each in zip(self._receivings, found, strict=True):
                    if isinstance(each, KernelError):
                        raise each
                    if isinstance(each, BaseException):
                        raise QueueStuck(
                            f"queue {receiving.queue!r} is stuck ({each}): see the log"
                        ) from each
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def run(self) -> None:
        """Serve until `stop()` or cancellation, through every loss of the broker or the database."""
        await self._begin()
        left = tasks = {
            asyncio.create_task(each.run(), name=f"outbox-take-{each.queue}") for each in self._receivings
        }
        try:
            while left:
                ended, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    raise_failure(task)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _begin(self) -> None:
        # What is stored is due for whoever has subscribed by then.
        waits = [asyncio.create_task(each.wait()) for each in (self._relay.subscribed, self._stopping)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _note(self, receiving: Receiving) -> None:
        """Take note of how a queue stands, and let it be seen in the database."""
        if all(each.is_consuming for each in self._receivings):
            self.consuming.set()
        else:
            self.consuming.clear()
        self._relay.note_pause(f"{QUEUE}{receiving.queue}", receiving.pause)
