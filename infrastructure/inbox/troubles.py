"""What is wrong with a queue: logged when it is news, kept for `status` and `doctor` while it lasts (T4, O1)."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.brokers.port import TopologyConflict
from outbox_kernel.infrastructure.inbox.limits import REPEAT_SECONDS
from outbox_kernel.infrastructure.outbox.delivery import storable
from outbox_kernel.infrastructure.postgres.connections import TROUBLE
from outbox_kernel.infrastructure.relay.limits import FAILURES_COUNTED_MAX
from outbox_kernel.infrastructure.relay.outages import Pause
from outbox_kernel.kernel.retry import EXPONENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from outbox_kernel.infrastructure.waiting import Signal

_log = logging.getLogger("outbox.consumer")


async def pause(failures: int, end: Signal) -> None:
    """Wait before the next try, unless there is to be none."""
    await end.wait(EXPONENTIAL.delay_after(min(failures, FAILURES_COUNTED_MAX)) or 0)


@attrs.define(eq=False)
class Trouble:
    """One way in which a queue may be stuck."""

    queue: str
    on_change: Callable[[], None]
    error: BaseException | None = None
    """Why it is stuck at the moment."""
    pause: Pause | None = None
    _told: str | None = None
    _repeat_at: float = 0.0

    def begin(self, error: BaseException) -> None:
        """Take note of a failure, the first or another."""
        self.error = error
        is_known = isinstance(error, TROUBLE)
        sentence = str(error) if is_known else f"{type(error).__name__}: {error}"
        self._log(sentence, None if is_known else error)
        before, self.pause = self.pause, Pause.over(storable(sentence), self.pause)
        if self.pause != before:
            self.on_change()

    def end(self, *, may_come_back: bool = False) -> None:
        """Take note that it is over; what comes back each time that it seems to be over is no news then."""
        if not may_come_back:
            self.forget()
        self.error = None
        if self.pause is not None:
            self.pause = None
            self.on_change()

    def forget(self) -> None:
        """Take the next failure for news, whatever it is."""
        self._told = None

    def _log(self, sentence: str, unknown: BaseException | None) -> None:
        if sentence == self._told and time.monotonic() < self._repeat_at:
            return
        self._told, self._repeat_at = sentence, time.monotonic() + REPEAT_SECONDS
        is_error = unknown is not None or isinstance(self.error, TopologyConflict)
        _log.log(
            logging.ERROR if is_error else logging.WARNING,
            "%s; the consumer tries again",
            sentence,
            exc_info=unknown,
            extra={"action": "consumer.stuck", "queue": self.queue},
        )


def together(troubles: Iterable[Trouble]) -> Pause | None:
    """Return all that is wrong with a queue as one thing."""
    found = [each.pause for each in troubles if each.pause is not None]
    if not found:
        return None
    reasons = dict.fromkeys(each.reason for each in found)
    return Pause("; ".join(reasons), min(each.since for each in found))
