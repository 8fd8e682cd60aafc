"""Every number that a process tells, by its name: what is rendered, pushed, drawn and documented comes from here (O4).

Names are OpenTelemetry's, those of its messaging conventions where it has one; Prometheus has them by its rules.
"""

from __future__ import annotations

from typing import Literal

import attrs

Kind = Literal["counter", "gauge", "histogram"]

# Attributes of the messaging conventions.
SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
DESTINATION = "messaging.destination.name"
SUBSCRIPTION = "messaging.destination.subscription.name"
ERROR = "error.type"
# And those that they have no name for.
OUTCOME = "outbox.outcome"
KIND = "outbox.subscription.kind"
STATUS = "outbox.delivery.status"
STATE = "outbox.state"
METHOD, ROUTE, CODE, SCHEME = (
    *("http.request.method", "http.route", "http.response.status_code"),
    "url.scheme",
)

_UNITS = {"s": "seconds"}

# Seconds, three to a decade: from a tenth of a millisecond to the better part of three hours.
BOUNDS_SECONDS = (
    *(float(f"{digits}e{decade}") for decade in range(-4, 4) for digits in ("1", "2.5", "5")),
    1e4,
)


@attrs.frozen
class Instrument:
    """One number, or one for each set of its labels."""

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def prometheus(self) -> str:
        """Its name in Prometheus."""
        parts = [self.name.replace(".", "_")]
        if self.unit in _UNITS and not parts[0].endswith(_UNITS[self.unit]):
            parts.append(_UNITS[self.unit])
        if self.kind == "counter":
            parts.append("total")
        return "_".join(parts)


def label(attribute: str) -> str:
    """Return an attribute's name in Prometheus."""
    return attribute.replace(".", "_")


_RUN = (SYSTEM, OPERATION, DESTINATION, SUBSCRIPTION)

# --- what a relay counts ------------------------------------------------------------------------------

PROCESS_DURATION = Instrument(
    *("messaging.process.duration", "histogram", "s"),
    "How long a handler ran, for each run that ended by itself.",
    (*_RUN, OUTCOME, ERROR),
)
CLIENT_DURATION = Instrument(
    *("messaging.client.operation.duration", "histogram", "s"),
    "How long a broker took to confirm, or to refuse, an event.",
    (*_RUN, OUTCOME, ERROR),
)
SENT = Instrument(
    *("messaging.client.sent.messages", "counter", "{message}"),
    "Events that were sent to a broker, whatever it said.",
    (*_RUN, OUTCOME, ERROR),
)
CONSUMED = Instrument(
    *("messaging.client.consumed.messages", "counter", "{message}"),
    "Events that handlers were given, and messages that were taken from a queue.",
    (*_RUN, OUTCOME, ERROR),
)
COMMIT_TO_HANDLER = Instrument(
    *("outbox.commit_to_handler.duration", "histogram", "s"),
    "How long an event waited in the outbox, until its first run began or it was first sent.",
    (DESTINATION, SUBSCRIPTION),
)
PASSED = Instrument(
    *("outbox.events.passed", "counter", "{event}"),
    "Events that a subscription has passed: done, or left as a delivery.",
    (DESTINATION, SUBSCRIPTION),
)
LEFT = Instrument(
    *("outbox.events.left", "counter", "{event}"),
    "Of those that it has passed, events that it has left as a delivery.",
    (DESTINATION, SUBSCRIPTION),
)
LEASE_RENEWALS = Instrument(
    *("outbox.lease.renewals", "counter", "{renewal}"), "How often this relay has renewed its lease."
)
LEASE_LOSSES = Instrument(
    *("outbox.lease.losses", "counter", "{loss}"),
    "How often this relay has lost its lease: it was not renewed in time.",
)
LEASE_REMAINING = Instrument(
    *("outbox.lease.remaining", "gauge", "s"), "For how long this relay's lease still holds."
)
HEARING = Instrument(
    *("outbox.relay.hearing", "gauge", ""), "Whether this relay hears of commits: 0, it polls."
)

# --- what a consumer counts ---------------------------------------------------------------------------

BURIED = Instrument(
    *("outbox.messages.buried", "counter", "{message}"),
    "Messages of a queue that no outbox could store: they went to the broker's dead letters.",
    (SYSTEM, DESTINATION),
)

# --- what an application counts -----------------------------------------------------------------------

WRITTEN = Instrument(
    *("outbox.events.written", "counter", "{event}"), "Events that sessions of this process have committed."
)
REQUEST_DURATION = Instrument(
    *("http.server.request.duration", "histogram", "s"),
    "How long requests took until they were answered.",
    (METHOD, ROUTE, CODE, SCHEME),
)

# --- what the database is asked for -------------------------------------------------------------------

RELAYS = Instrument(
    *("outbox.relays", "gauge", "{relay}"),
    "Relays that live, and those that are gone without a word.",
    (STATE,),
)
LAG = Instrument(
    *("outbox.subscription.lag", "gauge", "{event}"),
    "Events that a subscription has yet to pass; at 10000 there may be more.",
    (SUBSCRIPTION, KIND),
)
LAG_TIME = Instrument(
    *("outbox.subscription.lag.time", "gauge", "s"),
    "For how long the oldest of them has stood there.",
    (SUBSCRIPTION, KIND),
)
CARRIERS = Instrument(
    *("outbox.subscription.carriers", "gauge", "{relay}"),
    "Live relays that carry a subscription.",
    (SUBSCRIPTION, KIND),
)
UNCARRIED = Instrument(
    *("outbox.subscription.uncarried", "gauge", "{pattern}"),
    "Patterns that a subscription is due by, and no live relay of its name carries.",
    (SUBSCRIPTION, KIND),
)
STANDING_STILL = Instrument(
    *("outbox.subscription.standing_still", "gauge", ""),
    "Whether a handler or publisher stands still, since what it needs is away.",
    (SUBSCRIPTION, KIND),
)
PAUSED = Instrument(
    *("outbox.subscription.paused", "gauge", ""),
    "Whether an operator holds a subscription.",
    (SUBSCRIPTION, KIND),
)
DELIVERIES = Instrument(
    *("outbox.deliveries", "gauge", "{delivery}"),
    "Deliveries that are not settled: waiting for a run, parked behind a dead one, at work, or dead.",
    (SUBSCRIPTION, STATUS),
)
STRANDED = Instrument(
    *("outbox.deliveries.stranded", "gauge", "{delivery}"),
    "Deliveries that no live relay can run.",
    (SUBSCRIPTION,),
)
BACKLOG = Instrument(
    *("outbox.backlog", "gauge", "{event}"),
    "Events that are not delivered: pending, open or dead.",
    (STATE,),
)
OLDEST = Instrument(
    *("outbox.oldest.age", "gauge", "s"),
    "How old the oldest event is that somebody has yet to handle; dead ones are left out.",
)
ORPHANS = Instrument(
    *("outbox.leases.orphaned", "gauge", "{lease}"),
    "Cursors and deliveries that are held by relays which do not live.",
)
STUCK = Instrument(
    *("outbox.queue.stuck", "gauge", ""),
    "Whether a consumer cannot take from a queue as it should.",
    (DESTINATION,),
)
POSITION = Instrument(
    *("outbox.log.position", "gauge", "{position}"),
    "The last position in the log: it rises with each event, and has gaps.",
)
LOOKS_FAILED = Instrument(
    *("outbox.looks.failed", "counter", "{look}"),
    "How often the database could not be asked for the numbers above.",
)
LOOK_AGE = Instrument(
    *("outbox.look.age", "gauge", "s"), "How old the numbers above are; they are asked for anew when read."
)

COUNTED = (
    *(PROCESS_DURATION, CLIENT_DURATION, SENT, CONSUMED, COMMIT_TO_HANDLER, PASSED, LEFT),
    *(LEASE_RENEWALS, LEASE_LOSSES, LEASE_REMAINING, HEARING),
    *(BURIED, WRITTEN, REQUEST_DURATION),
)
ASKED = (
    *(RELAYS, LAG, LAG_TIME, CARRIERS, UNCARRIED, STANDING_STILL, PAUSED, DELIVERIES, STRANDED),
    *(BACKLOG, OLDEST, ORPHANS, STUCK, POSITION),
    *(LOOKS_FAILED, LOOK_AGE),
)
ALL = (*COUNTED, *ASKED)
