"""Outages: what is away is nobody's fault, and whoever needs it stands still until it is back (R7, R14, T4).

A broker is asked whether it is back. Nobody can ask what a handler needs, so an event of its own does: after each rest
one is run, alone, until one has had an answer, whatever that was.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.brokers.port import Outage
from outbox_kernel.infrastructure.cancelling import raise_failure
from outbox_kernel.infrastructure.outbox.delivery import storable
from outbox_kernel.infrastructure.outbox.sealing.scrubbing import scrubbed, traceback_of
from outbox_kernel.infrastructure.postgres.explain import sqlstate_of
from outbox_kernel.infrastructure.postgres.outages import is_outage
from outbox_kernel.infrastructure.relay.limits import FAILURES_COUNTED_MAX, PROBES_COUNTED_MAX, RACES_MAX
from outbox_kernel.kernel.errors import Reject, RetryAfter, SecondCommit, Unavailable
from outbox_kernel.kernel.retry import EXPONENTIAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outbox_kernel.infrastructure.brokers.port import Outlet
    from outbox_kernel.infrastructure.waiting import Signal

_log = logging.getLogger("outbox.relay")

_LOST_RACES = ("40001", "40P01")


def outage_of(error: BaseException) -> str | None:
    """Return what is away, in words, if that is why a run failed."""
    if isinstance(error, Unavailable):
        return str(error)
    if isinstance(error, Reject | RetryAfter | SecondCommit):
        return None  # whatever made it say so
    if is_outage(error) or sqlstate_of(error) in _LOST_RACES:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return None


def is_lost_race(error: BaseException) -> bool:
    """Whether another transaction was first; to run again at once may well do."""
    return not isinstance(error, Unavailable) and sqlstate_of(error) in _LOST_RACES


QUEUE = "queue "
"""What the name of a pause begins with that is a consumed queue's; no publisher's name has a blank."""


@attrs.frozen
class Pause:
    """Why somebody stands still at the moment, and since when."""

    reason: str
    since: datetime

    @classmethod
    def over(cls, reason: str, before: Pause | None) -> Pause:
        """Return the pause that begins, or goes on for this reason."""
        return cls(reason, datetime.now(UTC) if before is None else before.since)

    @property
    def seconds(self) -> float:
        """For how long it has lasted."""
        return (datetime.now(UTC) - self.since).total_seconds()


@attrs.define(eq=False)
class BrokerOutage:
    """Asks the broker whether it takes messages: at first, and after each outage until it does."""

    name: str
    outlet: Outlet
    changed: Signal
    """Set when it begins, ends, or has another reason."""
    pause: Pause | None = None
    known: asyncio.Event = attrs.Factory(asyncio.Event)
    """Set once the broker was found to be there, or not to be."""
    _failures: int = 0
    _broken: asyncio.Event = attrs.Factory(asyncio.Event)
    _task: asyncio.Task[None] | None = None

    @property
    def is_away(self) -> bool:
        """Whether there is no sense in claiming what waits for the broker."""
        return self.pause is not None or not self.known.is_set()

    def check(self) -> None:
        """Raise what this has died of."""
        if self._task is not None and self._task.done():
            raise_failure(self._task)

    def open(self) -> None:
        """Begin to ask."""
        self._task = asyncio.get_running_loop().create_task(self._ask(), name=f"outbox-publisher-{self.name}")
        self._task.add_done_callback(lambda _: self.known.set())  # or whoever waits would do so for ever

    async def close(self) -> None:
        """Ask no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def begin(self, outage: Outage) -> None:
        """Pause: the broker takes nothing, and nobody is charged for that."""
        self._broken.set()
        before, self.pause = self.pause, Pause.over(storable(outage.reason), self.pause)
        if before is None:
            _log.warning(
                "publisher %r is paused until its broker takes messages: %s",
                *(self.name, self.pause.reason),
                extra={"action": "publisher.stands_still", "publisher": self.name},
            )
        if self.pause != before:
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
            _log.info(
                "publisher %r goes on after %.1f s",
                *(self.name, pause.seconds),
                extra={"action": "publisher.goes_on", "publisher": self.name},
            )
        self._tell()

    def _tell(self) -> None:
        self.known.set()
        self.changed.set()


@attrs.define(eq=False)
class HandlerOutage:
    """Whether a handler stands still, why, and until when."""

    handler: str
    pause: Pause | None = None
    """Why it stands still; there until an event has had an answer."""
    _failures: int = 0
    _races: int = 0
    _rests_until: float = 0.0

    @property
    def is_disturbed(self) -> bool:
        """Whether an answer changes anything."""
        return self.pause is not None or self._races > 0

    @property
    def is_away(self) -> bool:
        """Whether nothing is to be run, not even one event that asks."""
        return self.pause is not None and time.monotonic() < self._rests_until

    def begin(self, error: BaseException, started: float, secrets: Sequence[str] = ()) -> None:
        """Take note of an outage that a run has met, which was started at that moment; of these nothing is told."""
        if is_lost_race(error) and self._races < RACES_MAX:
            self._races += 1
            return
        if started < self._rests_until:
            return  # it was under way already when another one met it
        reason = storable(scrubbed(outage_of(error) or "", secrets))
        before, self.pause = self.pause, Pause.over(reason, self.pause)
        if before is None:
            _log.warning(
                "handler %s stands still until what it needs is back: %s",
                *(self.handler, reason),
                extra={"action": "handler.stands_still", "handler": self.handler},
                # What a handler says on purpose has nothing to look for in a traceback.
                exc_info=None if isinstance(error, Unavailable) else traceback_of(error, secrets),
            )
        self._failures = min(self._failures + 1, PROBES_COUNTED_MAX)
        self._rests_until = time.monotonic() + (EXPONENTIAL.delay_after(self._failures) or 0)

    def note_answer(self, started: float) -> None:
        """Take note of a run that came to an end of its own, which was started at that moment."""
        self._races = 0
        if self.pause is None or started < self._rests_until:
            return
        _log.info(
            "handler %s goes on after %.1f s",
            *(self.handler, self.pause.seconds),
            extra={"action": "handler.goes_on", "handler": self.handler},
        )
        self.pause, self._failures = None, 0
