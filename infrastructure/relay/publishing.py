"""Publishing: what a subscriber does whose events go to a broker (T1, T4, R7).

Within an aggregate one event is sent after the other's confirm, across aggregates many at once. While the broker is
not there the publisher stands still at its cursor: nothing is charged, nothing is written, and a probe finds out when
to go on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.brokers.messages import message_of
from outbox_kernel.infrastructure.brokers.port import Outage, Published, Refused
from outbox_kernel.infrastructure.outbox.sealing.scrubbing import traceback_of
from outbox_kernel.infrastructure.relay.retry import DONE, Verdict, about_event, refused
from outbox_kernel.infrastructure.relay.run import Away, GivenBack
from outbox_kernel.kernel.errors import Unavailable

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.brokers.port import Outcome
    from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
    from outbox_kernel.infrastructure.relay.outages import BrokerOutage
    from outbox_kernel.infrastructure.relay.subscription import CarriedPublisher
    from outbox_kernel.infrastructure.relay.workers import Work, Worker
    from outbox_kernel.infrastructure.telemetry.counting import SubscriptionCounts
    from outbox_kernel.infrastructure.telemetry.run_spans import RunSpans

_log = logging.getLogger("outbox.relay")


@attrs.frozen(eq=False)
class Sent:
    """An event on its way to the broker; it is counted as a handler's run is."""

    row: LoggedEvent
    attempts: int
    started: float
    rows: None = None
    detached: bool = False


@attrs.define(eq=False)
class Sending:
    """Publishes for one publisher."""

    carried: CarriedPublisher
    outage: BrokerOutage
    counts: SubscriptionCounts | None = None
    spans: RunSpans | None = None

    async def __call__(self, _worker: Worker, work: Work) -> Verdict | None:
        """Send one event; raise Away if the broker is away, or nobody knows whether it arrived."""
        if self.outage.is_away:
            raise Away
        sent, verdict = Sent(work.row, work.attempts, time.monotonic()), None
        span = None if self.spans is None else self.spans.begin(sent)
        try:
            verdict = self._verdict(work, await self._send(work.row))
        finally:
            if span is not None:
                span.end(verdict)
        if self.counts is not None:
            self.counts.count(sent, verdict)
        return verdict

    def _verdict(self, work: Work, outcome: Outcome) -> Verdict:
        if isinstance(outcome, Outage):
            self.outage.begin(outcome)
            raise Away
        if isinstance(outcome, Refused):
            return refused(self.carried, work.row, work.attempts, outcome.reason)
        self.outage.note_success()
        return DONE

    async def _send(self, row: LoggedEvent) -> Outcome:
        try:
            message = message_of(row, self.carried.publisher.sensitive)
        except Unavailable as away:
            return Outage(str(away))
        except Exception as error:  # noqa: BLE001 - whatever is stored, it is that event's affair alone
            return Refused(
                f"it makes no message ({type(error).__name__}: {error}): look at its payload and headers"
            )
        try:
            outcome = await self.carried.outlet.publish(message)
        except asyncio.CancelledError:
            raise GivenBack from None  # told to stop before it was confirmed
        except Exception as error:  # noqa: BLE001 - what an outlet fails over is that event's affair, too
            about = {"publisher": self.carried.name, **about_event(row)}
            _log.error(
                "the outlet of publisher %s failed over event %s",
                *(self.carried.name, row.event_id),
                extra={"action": "publisher.outlet.failed", **about},
                exc_info=traceback_of(error, row.secrets),
            )
            return Refused(
                f"its outlet failed over it ({type(error).__name__}: {error}): look at the relay's log"
            )
        return outcome if isinstance(outcome, Outage | Refused) else Published()
