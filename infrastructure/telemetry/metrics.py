"""The numbers of one process: what counts in it, and what it asks the database for, together (O4)."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.telemetry import instruments as numbers
from outbox_kernel.infrastructure.telemetry.counting import (
    Histogram,
    QueueCounts,
    RelayCounts,
    RequestCounts,
    SubscriptionCounts,
)
from outbox_kernel.infrastructure.telemetry.limits import ASK_SECONDS_MAX, FRESH_SECONDS, STALE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from outbox_kernel.infrastructure.telemetry.instruments import Instrument

_log = logging.getLogger("outbox.metrics")

SYSTEM = "outbox"
"""What the messaging conventions call the outbox itself."""


def _number(value: float | Histogram) -> float | Histogram:
    return int(value) if isinstance(value, bool) else value


@attrs.frozen
class Sample:
    """One number, or a histogram, and what it is of."""

    instrument: Instrument
    labels: Mapping[str, str]
    value: float | Histogram = attrs.field(converter=_number)
    """Whether something is so is 1 or 0."""


class Written:
    """How many events sessions of this process have committed; they may do so in several threads."""

    def __init__(self) -> None:
        self.events: int = 0
        self._turn = threading.Lock()

    def add(self, events: int) -> None:
        """Count events that are durable now."""
        with self._turn:
            self.events += events


written = Written()
"""Of this process: sessions know of no other."""


class Metrics:
    """What one process counts. Whoever counts takes a part of it; who asks gets all of it at once."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self.relay: RelayCounts | None = None
        self.requests: RequestCounts = RequestCounts()
        self._subscriptions: dict[str, SubscriptionCounts] = {}
        self._queues: dict[str, QueueCounts] = {}
        self._now = now
        self._look: Look | None = None

    def of_relay(self) -> RelayCounts:
        """Return where a relay of this process counts."""
        if self.relay is None:
            self.relay = RelayCounts()
        return self.relay

    def of_subscription(self, labels: Mapping[str, str], **options: int) -> SubscriptionCounts:
        """Return where a subscription of that relay counts."""
        name = labels[numbers.SUBSCRIPTION]
        if name not in self._subscriptions:
            self._subscriptions[name] = SubscriptionCounts(self.of_relay().clock, labels, **options)
        return self._subscriptions[name]

    def of_queue(self, name: str, *, system: str) -> QueueCounts:
        """Return where a queue's consumer counts."""
        if name not in self._queues:
            self._queues[name] = QueueCounts({numbers.SYSTEM: system, numbers.DESTINATION: name})
        return self._queues[name]

    def asks(self, ask: Callable[[], Awaitable[list[Sample]]]) -> None:
        """Ask there for what only the database knows."""
        self._look = Look(ask, now=self._now)

    async def samples(self) -> list[Sample]:
        """Return all numbers as they are now."""
        asked = [] if self._look is None else await self._look.samples()
        return [*self._of_relay(), *self._of_subscriptions(), *self._of_queues(), *self._of_process(), *asked]

    def _of_relay(self) -> Iterable[Sample]:
        if (relay := self.relay) is None:
            return
        yield Sample(numbers.LEASE_RENEWALS, {}, relay.renewals)
        yield Sample(numbers.LEASE_LOSSES, {}, relay.losses)
        left = 0.0 if relay.holds_until is None else max(0.0, relay.holds_until - self._now())
        yield Sample(numbers.LEASE_REMAINING, {}, left)
        if relay.hears is not None:
            yield Sample(numbers.HEARING, {}, relay.hears)

    def _of_subscriptions(self) -> Iterable[Sample]:
        for counts in self._subscriptions.values():
            labels, done = counts.labels, counts.done
            sends = labels[numbers.OPERATION] == "send"
            runs = {("done", ""): done, **counts.failed}
            for (outcome, error), histogram in runs.items():
                told = {**labels, numbers.OUTCOME: outcome, **({numbers.ERROR: error} if error else {})}
                yield Sample(
                    numbers.CLIENT_DURATION if sends else numbers.PROCESS_DURATION, told, histogram.copy()
                )
                if sends:
                    yield Sample(numbers.SENT, told, sum(histogram.counts))
            if not sends:
                taken = sum(sum(each.counts) for each in runs.values()) + counts.more
                yield Sample(numbers.CONSUMED, labels, taken)
            whose = {name: labels[name] for name in numbers.COMMIT_TO_HANDLER.labels}
            yield Sample(numbers.COMMIT_TO_HANDLER, whose, counts.waits)
            yield Sample(numbers.PASSED, whose, counts.passed)
            yield Sample(numbers.LEFT, whose, counts.events_left)

    def _of_queues(self) -> Iterable[Sample]:
        for counts in self._queues.values():
            yield Sample(numbers.CONSUMED, {**counts.labels, numbers.OPERATION: "receive"}, counts.stored)
            yield Sample(numbers.BURIED, counts.labels, counts.buried)

    def _of_process(self) -> Iterable[Sample]:
        yield Sample(numbers.WRITTEN, {}, written.events)
        names = numbers.REQUEST_DURATION.labels
        for kind, histogram in self.requests.by_kind.items():
            yield Sample(numbers.REQUEST_DURATION, dict(zip(names, kind, strict=True)), histogram.copy())


class Look:
    """What the database was asked for, for whoever comes within the next seconds."""

    def __init__(self, ask: Callable[[], Awaitable[list[Sample]]], *, now: Callable[[], float]) -> None:
        self._ask = ask
        self._now = now
        self._turn = asyncio.Lock()
        self._samples: list[Sample] = []
        self._tried_at = float("-inf")
        self._succeeded_at = now()
        self._failed = 0

    async def samples(self) -> list[Sample]:
        """Return what it says, and how old that is; where it does not answer, soon nothing."""
        async with self._turn:
            if self._now() - self._tried_at >= FRESH_SECONDS:
                await self._try()
        age = self._now() - self._succeeded_at
        if age > STALE_SECONDS:
            self._samples = []
        return [
            *self._samples,
            Sample(numbers.LOOKS_FAILED, {}, self._failed),
            Sample(numbers.LOOK_AGE, {}, age),
        ]

    async def _try(self) -> None:
        try:
            async with asyncio.timeout(ASK_SECONDS_MAX):
                self._samples = await self._ask()
            self._succeeded_at = self._now()
        except Exception as error:  # noqa: BLE001 - whatever it is, what this process counts is told all the same
            self._failed += 1
            _log.warning(
                "the database cannot be asked for metrics: %s",
                str(error) or type(error).__name__,
                extra={"action": "metrics.not_asked"},
            )
        self._tried_at = self._now()
