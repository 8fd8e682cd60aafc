"""What a relay counts and traces of its work, where anybody takes it (O4)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.outbox.sql.leases import CLOCK
from outbox_kernel.infrastructure.relay.lease import LeaseLost
from outbox_kernel.infrastructure.relay.subscription import CarriedPublisher
from outbox_kernel.infrastructure.telemetry import instruments as numbers
from outbox_kernel.infrastructure.telemetry.counting import RelayCounts
from outbox_kernel.infrastructure.telemetry.metrics import SYSTEM
from outbox_kernel.infrastructure.telemetry.tracing import tracing

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.relay.log import Log
    from outbox_kernel.infrastructure.relay.subscription import CarriedAny
    from outbox_kernel.infrastructure.telemetry.counting import SubscriptionCounts
    from outbox_kernel.infrastructure.telemetry.metrics import Metrics
    from outbox_kernel.infrastructure.telemetry.run_spans import RunSpans


@attrs.frozen
class Observing:
    """What one relay tells of itself, through all its shifts."""

    metrics: Metrics | None
    """None: nobody asks for numbers."""
    lease_seconds: float
    relay: RelayCounts = attrs.field(init=False)
    """Of no account where nobody asks."""

    @relay.default
    def _counts_of_the_process(self) -> RelayCounts:
        return RelayCounts() if self.metrics is None else self.metrics.of_relay()

    async def begin(self, control: Log) -> None:
        """Take note of a new lease, and of the server's clock; renewals go on doing so."""
        asked = time.monotonic()
        [row] = await control.run(CLOCK)
        self._note_lease(asked, row["shown"])

    def note_renewal(self, asked: float, shown: float) -> None:
        """Take note of a renewal that was asked for at that moment, and of what the server's clock showed."""
        self.relay.renewals += 1
        self._note_lease(asked, shown)

    def _note_lease(self, asked: float, shown: float) -> None:
        self.relay.holds_until = asked + self.lease_seconds
        self.relay.clock.note(asked, shown, time.monotonic())

    def note_trouble(self, error: BaseException) -> None:
        """Take note of what has ended a shift."""
        self.relay.losses += isinstance(error, LeaseLost)

    def end(self) -> None:
        """Take note that it has no lease any more."""
        self.relay.holds_until = self.relay.hears = None

    def of(self, carried: CarriedAny) -> tuple[SubscriptionCounts | None, RunSpans | None]:
        """Return where what is done for a subscription is counted, and what traces it."""
        labels, spans = _labels(carried), tracing.spans()
        # Each run over a batch stands for itself.
        timed = {} if carried.batch is None else {"timed_of_max": 1}
        return (
            None if self.metrics is None else self.metrics.of_subscription(labels, **timed),
            None if spans is None else spans.of_runs(self.relay.clock, labels),
        )


def _labels(carried: CarriedAny) -> dict[str, str]:
    """Return how the messaging conventions name a subscription, and what it does with an event."""
    if isinstance(carried, CarriedPublisher):
        system, operation, destination = carried.outlet.system, "send", str(carried.publisher.exchange)
    else:
        system, operation, destination = SYSTEM, "process", carried.source or SYSTEM
    return {
        numbers.SYSTEM: system,
        numbers.OPERATION: operation,
        numbers.DESTINATION: destination,
        numbers.SUBSCRIPTION: carried.name,
    }
