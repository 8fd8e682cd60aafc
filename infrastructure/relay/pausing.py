"""Pausing: a publisher whose broker is away is paused as a whole, and goes on by itself (R7, R14, T4)."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.brokers.port import Outage
from outbox_kernel.infrastructure.relay.running import storable
from outbox_kernel.kernel.retry import EXPONENTIAL

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.brokers.port import Outlet

_log = logging.getLogger("outbox.relay")

# The third delay of EXPONENTIAL: a broker that is back is found within seconds, however long it was away.
FAILURES_COUNTED_MAX = 3
QUEUE = "queue "
"""What the name of a pause begins with that is a consumed queue's; no publisher's name has a blank."""


@attrs.frozen
class Pause:
    """Why nothing is published at the moment, and since when."""

    reason: str
    since: datetime


@attrs.define(eq=False)
class Pausing:
    """Asks the broker whether it takes messages: at first, and after each outage until it does."""

    name: str
    outlet: Outlet
    changed: asyncio.Event
    """Set when it begins, ends, or has another reason."""
    pause: Pause | None = None
    known: asyncio.Event = attrs.Factory(asyncio.Event)
    """Set once the broker was found to be there, or not to be."""
    _began: float = attrs.field(factory=time.monotonic)
    _failures: int = 0
    _broken: asyncio.Event = attrs.Factory(asyncio.Event)
    _task: asyncio.Task[None] | None = None

    @property
    def is_known(self) -> bool:
        """Whether it is known if the broker is there."""
        return self.known.is_set()

    def is_unknown_since(self, moment: float) -> bool:
        """Whether it has taken long to find out."""
        return not self.is_known and self._began < moment

    @property
    def is_held(self) -> bool:
        """Whether there is no sense in claiming what waits for the broker."""
        return self.pause is not None or not self.is_known

    @property
    def failure(self) -> BaseException | None:
        """What this has died of."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()

    def open(self) -> None:
        """Begin to ask."""
        self._task = asyncio.get_running_loop().create_task(self._ask(), name=f"outbox-publisher-{self.name}")

    async def close(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def begin(self, outage: Outage) -> None:
        """Pause: the broker takes nothing, and nobody is charged for that."""
        self._broken.set()
        reason = storable(outage.reason)
        if self.pause is None:
            _log.warning(
                "publisher %r is paused until its broker takes messages: %s",
                self.name,
                reason,
                extra={"action": "publisher.stands_still", "publisher": self.name},
            )
            self.pause = Pause(reason, datetime.now(UTC))
        elif self.pause.reason == reason:
            return
        else:
            self.pause = attrs.evolve(self.pause, reason=reason)
        self._tell()

    def note_success(self) -> None:
        """Take note that the broker does take messages, and does not only answer."""
        self._failures = 0

    async def _ask(self) -> None:
        while True:
            outage = await self._proved()
            if outage is None:
                self._broken.clear()
                self._end()
                await self._broken.wait()
            else:
                self.begin(outage)
            self._failures += 1
            await asyncio.sleep(EXPONENTIAL.delay_after(min(self._failures, FAILURES_COUNTED_MAX)) or 0)

    async def _proved(self) -> Outage | None:
        try:
            return await self.outlet.prove()
        except Exception as error:  # noqa: BLE001 - handlers go on, whatever is wrong with an outlet
            if self.pause is None:
                _log.exception(
                    "the outlet of publisher %s failed",
                    self.name,
                    extra={"action": "publisher.outlet.failed", "publisher": self.name},
                )
            return Outage(f"its outlet failed ({type(error).__name__}: {error})")

    def _end(self) -> None:
        pause, self.pause = self.pause, None
        if pause is not None:
            seconds = (datetime.now(UTC) - pause.since).total_seconds()
            _log.info(
                "publisher %r goes on after %.1f s",
                self.name,
                seconds,
                extra={"action": "publisher.goes_on", "publisher": self.name},
            )
        self._tell()

    def _tell(self) -> None:
        self.known.set()
        self.changed.set()
