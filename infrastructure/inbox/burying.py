"""Burying: what cannot be stored goes to the dead letters as soon as the broker takes it (T3, T4)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.brokers.port import BrokerRefusal
from outbox_kernel.infrastructure.inbox.troubles import pause

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outbox_kernel.infrastructure.brokers.port import Incoming, Inlet
    from outbox_kernel.infrastructure.inbox.troubles import Trouble
    from outbox_kernel.infrastructure.telemetry.counting import QueueCounts
    from outbox_kernel.infrastructure.waiting import Signal

_log = logging.getLogger("outbox.consumer")


@attrs.define(eq=False)
class Burying:
    """Buries one message at a time, beside what is stored meanwhile.

    What cannot be buried is kept and tried again: given back, it would count as delivered once more, until a queue
    with a delivery limit drops it. The prefetch bounds how many are kept; a queue that has given us nothing but these
    gives no more until they are buried.
    """

    queue: str
    inlet: Inlet
    trouble: Trouble
    ending: Signal
    on_settled: Callable[[], None]
    """Called when a message is out of the queue."""
    counts: QueueCounts | None = None
    _kept: list[tuple[Incoming, str]] = attrs.Factory(list)
    _changed: asyncio.Event = attrs.Factory(asyncio.Event)
    _has_given_up: bool = False

    def let_go(self) -> None:
        """Keep nothing: it comes again."""
        self._kept, self._has_given_up = [], False
        self.trouble.end(may_come_back=True)

    def take(self, dead: Sequence[tuple[Incoming, str]]) -> None:
        """Bury these, each for its reason."""
        self._kept += dead
        self._changed.set()

    async def serve(self) -> None:
        """Bury what there is, until cancelled; one that is not taken goes behind the others."""
        failures = 0
        while True:
            if not self._kept or self._has_given_up:
                self._changed.clear()
                await self._changed.wait()
                continue
            message, reason = self._kept[0]
            try:
                await self.inlet.bury(message, reason, self._wait)
            except BrokerRefusal as refusal:
                failures += 1
                await self._put_off(refusal, failures)
            else:
                failures = 0
                self._note_buried(message, reason)

    async def drain(self) -> None:
        """Return when everything is buried, or would have to be tried again."""
        while self._kept and not self._has_given_up:
            self._changed.clear()
            await self._changed.wait()

    def _note_buried(self, message: Incoming, reason: str) -> None:
        _log.error(
            "message goes to the dead letters: %s",
            reason,
            extra={
                "action": "consumer.message.buried",
                "queue": self.queue,
                "message_id": message.message_id,
            },
        )
        if self.counts is not None:
            self.counts.buried += 1
        del self._kept[0]
        if not self._kept:
            self.trouble.end()
        self._changed.set()
        self.on_settled()

    async def _put_off(self, refusal: BrokerRefusal, failures: int) -> None:
        if self.ending.is_set():
            _log.warning(
                "%s; what was not acknowledged comes again",
                refusal,
                extra={"action": "consumer.unacknowledged", "queue": self.queue},
            )
            self._has_given_up = True
            self._changed.set()
            return
        self.trouble.begin(refusal)
        self._kept.append(self._kept.pop(0))
        await pause(failures, self.ending)

    def _wait(self, refusal: BrokerRefusal) -> None:
        if self.ending.is_set():
            raise refusal
        self.trouble.begin(refusal)
