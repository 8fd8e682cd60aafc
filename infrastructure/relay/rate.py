"""Rates and bounds of one handler over a whole fleet, which has one relay run it (R16).

Runs are spaced evenly. A window that is counted out would let them all begin at once, and once more in each relay that
takes over.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

import attrs

from outbox_kernel.infrastructure.relay.limits import IN_HAND_TIMES, LATE_SECONDS_MAX
from outbox_kernel.kernel.rates import interval_seconds

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.relay.settings import RelaySettings
    from outbox_kernel.kernel.handlers import HandlerRegistration


@attrs.define(eq=False)
class Pacer:
    """Says when the next run may begin."""

    interval_seconds: float
    _next_at: float = 0.0

    def rest_seconds(self) -> float:
        """Return how long to wait; none, if one may begin now."""
        return max(0.0, self._next_at - time.monotonic())

    def begin(self) -> None:
        """Take note that a run begins."""
        self._next_at = max(self._next_at, time.monotonic() - LATE_SECONDS_MAX) + self.interval_seconds


@attrs.frozen
class Bounds:
    """How much of a handler's there may be at once."""

    workers_max: int
    batch_max: int
    """How many events are read at once."""
    pacer: Pacer | None = None

    @classmethod
    def of(cls, registration: HandlerRegistration, settings: RelaySettings) -> Self:
        """What the handler says, and else the relay."""
        interval, at_once = interval_seconds(registration.rate), registration.batch or 1
        batch_max = max(settings.batch_size_max, at_once)
        if registration.concurrency is not None:
            batch_max = min(batch_max, registration.concurrency * IN_HAND_TIMES * at_once)
        if interval is not None:
            batch_max = min(batch_max, max(1, int(1 / interval)) * at_once)  # what may begin within a second
        # What is done in batches is done by one run at a time: two would have half as much each.
        workers_max = registration.concurrency or (settings.concurrency if registration.batch is None else 1)
        return cls(workers_max, batch_max, None if interval is None else Pacer(interval))
