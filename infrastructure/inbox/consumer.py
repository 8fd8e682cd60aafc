"""The consumer: takes what arrives in queues, stores it, and acknowledges it once that has committed (T3, T4)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.inbox.receiving import Receiving
from outbox_kernel.infrastructure.inbox.storing import Storage
from outbox_kernel.infrastructure.relay.line import Line
from outbox_kernel.infrastructure.relay.pausing import QUEUE
from outbox_kernel.kernel.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from outbox_kernel.infrastructure.brokers.port import Broker
    from outbox_kernel.infrastructure.brokers.topology import Topology
    from outbox_kernel.infrastructure.master_keys import MasterKeys
    from outbox_kernel.infrastructure.relay import OutboxRelay
    from outbox_kernel.infrastructure.telemetry.metrics import Metrics

# All of them are in memory, up to a megabyte each and more; a thousand were hardly faster.
PREFETCH = 250
LOOK_SECONDS = 0.1


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
        prefetch: int = PREFETCH,
        master_keys: MasterKeys | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._relay = relay
        # What is stored is due for whoever has subscribed by then.
        self._may_begin = relay.subscribed
        self._stopping = asyncio.Event()
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
        tasks = [
            asyncio.create_task(each.run(), name=f"outbox-take-{each.queue}") for each in self._receivings
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _begin(self) -> None:
        waits = [asyncio.create_task(each.wait()) for each in (self._may_begin, self._stopping)]
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
