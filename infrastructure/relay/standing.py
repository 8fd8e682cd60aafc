"""Standing still: a handler for which something is away waits as a whole, and probes with one event (R7).

Nobody can ask what a handler needs whether it is back, so an event of its own does: after each rest one is run, alone,
until one has had an answer, whatever that was.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.outbox.sealing.scrubbing import scrubbed, traceback_of
from outbox_kernel.infrastructure.relay.outages import is_lost_race, outage_of
from outbox_kernel.infrastructure.relay.pausing import Pause
from outbox_kernel.infrastructure.relay.running import storable
from outbox_kernel.kernel.errors import Unavailable
from outbox_kernel.kernel.retry import EXPONENTIAL

if TYPE_CHECKING:
    from collections.abc import Sequence

_log = logging.getLogger("outbox.relay")

# Lost races of transactions, one after the other, after which it stands still: fewer are run again at once.
RACES_MAX = 3
# The fifth delay of EXPONENTIAL: a probe a minute costs nobody anything, and finds soon what is back.
FAILURES_COUNTED_MAX = 5


@attrs.define(eq=False)
class Standing:
    """Whether a handler stands still, why, and until when."""

    handler: str
    pause: Pause | None = None
    """Why it stands still; there until an event has had an answer."""
    _failures: int = 0
    _races: int = 0
    _rests_until: float = 0.0

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
        if self.pause is None:
            self.pause = Pause(reason, datetime.now(UTC))
            _log.warning(
                "handler %s stands still until what it needs is back: %s",
                *(self.handler, reason),
                extra={"action": "handler.stands_still", "handler": self.handler},
                # What a handler says on purpose has nothing to look for in a traceback.
                exc_info=None if isinstance(error, Unavailable) else traceback_of(error, secrets),
            )
        elif self.pause.reason != reason:
            self.pause = attrs.evolve(self.pause, reason=reason)
        self._failures = min(self._failures + 1, FAILURES_COUNTED_MAX)
        self._rests_until = time.monotonic() + (EXPONENTIAL.delay_after(self._failures) or 0)

    def note_answer(self, started: float) -> None:
        """Take note of a run that came to an end of its own, which was started at that moment."""
        self._races = 0
        if self.pause is None or started < self._rests_until:
            return
        seconds = (datetime.now(UTC) - self.pause.since).total_seconds()
        _log.info(
            "handler %s goes on after %.1f s",
            self.handler,
            seconds,
            extra={"action": "handler.goes_on", "handler": self.handler},
        )
        self.pause, self._failures = None, 0
