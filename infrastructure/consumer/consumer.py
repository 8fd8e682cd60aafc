"""The consumer: takes what arrives in queues, stores it, and acknowledges it once that has committed (T3, T4)."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING

from infrastructure.brokers.rabbitmq.declaring import TopologyConflict, declare
from infrastructure.brokers.rabbitmq.link import Link
from infrastructure.brokers.rabbitmq.trouble import BrokerRefusal
from infrastructure.connections import TROUBLE
from infrastructure.consumer.intake import Intake, pause
from infrastructure.consumer.storing import Storage
from infrastructure.relay.line import Line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy.ext.asyncio import AsyncEngine

    from infrastructure.brokers.rabbitmq.address import Address
    from infrastructure.brokers.topology import Topology
    from infrastructure.relay import OutboxRelay

_log = logging.getLogger("outbox.consumer")

# All of them are in memory, up to a megabyte each and more; a thousand were hardly faster.
PREFETCH = 250
# A connection that has stood for so long is lost for another reason than the one before.
PEACE_SECONDS = 60.0
DRAIN_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.1


class Consumer:
    """Empties queues into the outbox of its own database, until it is told to stop.

    A queue's consumer is single and active: of several processes one is given its messages, the others stand by.
    """

    def __init__(
        self,
        address: Address,
        topology: Topology,
        queues: Sequence[str],
        engine: AsyncEngine,
        *,
        schema: str | None = None,
        relay: OutboxRelay,
        prefetch: int = PREFETCH,
        now: datetime | None = None,
    ) -> None:
        self._topology = topology.reading(queues)
        self._dead_letter_exchange = topology.dead_letter_exchange
        self._link = Link(address, f"outbox consumer {' '.join(queues)}"[:200])
        self._intakes = [
            Intake(
                Storage(each, schema, now),
                Line(engine),
                prefetch,
                topology.dead_letter_exchange,
                on_stored=relay.look_at,
                on_settled=self._begin_anew,
                on_trouble=self._tell,
            )
            for each in queues
        ]
        # What is stored is due for whoever has subscribed by then.
        self._may_begin = relay.subscribed
        self._stopping = asyncio.Event()
        self._trouble: BaseException | None = None
        self._failures = 0
        self._peace_at = math.inf
        self.consuming = asyncio.Event()
        """Set while the broker knows us as its consumer."""

    def stop(self) -> None:
        """Take no more; what has been taken is stored."""
        self._stopping.set()

    async def emptied(self) -> None:
        """Return when nothing is left in the queues; raise why that cannot be, if there is no broker."""
        while not self._stopping.is_set():
            if self._trouble is not None:
                raise self._trouble
            if self.consuming.is_set() and await self._all_empty():
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _all_empty(self) -> bool:
        try:
            return all([await each.is_empty() for each in self._intakes])
        except BrokerRefusal:
            return False  # the connection is lost, and made again

    async def run(self) -> None:
        """Serve until `stop()` or cancellation, through every loss of the broker or the database."""
        try:
            await self._begin()
            while not self._stopping.is_set():
                self._peace_at = math.inf
                try:
                    await self._consume()
                    # An intake that ends without a word is no reason to hurry.
                    self._failures += 1
                except (BrokerRefusal, *TROUBLE) as error:
                    # That it consumes is no success: what it takes may be what it fails over, each time again.
                    self._failures = 1 if self._peace_at < time.monotonic() else self._failures + 1
                    self._tell(error, self._failures)
                finally:
                    self.consuming.clear()
                    self._link.drop()
                await pause(self._failures, self._stopping)
        finally:
            await self._link.close()
            for intake in self._intakes:
                await intake.close()

    async def _begin(self) -> None:
        waits = [asyncio.create_task(each.wait()) for each in (self._may_begin, self._stopping)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _consume(self) -> None:
        """Consume every queue until one of them is lost, or all are told to stop."""
        await declare(self._link, self._topology)
        stop = asyncio.create_task(self._stopping.wait(), name="outbox-consumer-stop")
        serving: list[asyncio.Task[None]] = []
        try:
            for intake in self._intakes:
                await intake.open(self._link)
                serving.append(asyncio.create_task(intake.serve(), name=f"outbox-consume-{intake.queue}"))
            self._trouble = None
            self._peace_at = time.monotonic() + PEACE_SECONDS
            self.consuming.set()
            _log.info("consuming", extra={"queues": ", ".join(each.queue for each in self._intakes)})
            await asyncio.wait([stop, *serving], return_when=asyncio.FIRST_COMPLETED)
            if self._stopping.is_set():
                await self._drain(serving)
        finally:
            for task in (stop, *serving):
                task.cancel()
            await asyncio.wait([stop, *serving])
        for task in serving:
            if not task.cancelled():
                task.result()

    async def _drain(self, serving: Sequence[asyncio.Task[None]]) -> None:
        """Store what has been taken; without a database or a broker it stays with the broker, and comes again."""
        draining = asyncio.create_task(self._drain_all(), name="outbox-consumer-drain")
        await asyncio.wait(
            [draining, *serving], timeout=DRAIN_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED
        )
        draining.cancel()
        await asyncio.wait([draining])
        if not draining.cancelled() and (error := draining.exception()):
            _log.warning("%s; what was not acknowledged comes again", error)

    async def _drain_all(self) -> None:
        await asyncio.gather(*(each.drain() for each in self._intakes))

    def _begin_anew(self) -> None:
        self._failures = 0

    def _tell(self, error: BaseException, failures: int) -> None:
        self._trouble = error
        level = logging.ERROR if isinstance(error, TopologyConflict) else logging.WARNING
        _log.log(level if failures == 1 else logging.DEBUG, "%s; the consumer tries again", error)
