"""The spans of a relay: how long an event waited in the outbox, and what became of it then (O4).

The time in the outbox belongs to the trace of who wrote the event. The run, or the way to a broker, is a trace of its
own: each links to the other. Where one trace is asked for, the run is a part of that.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from outbox_kernel.infrastructure.telemetry import instruments as names
from outbox_kernel.infrastructure.telemetry.counting import OTHER_ERRORS, error_of, outcome_of
from outbox_kernel.infrastructure.telemetry.limits import LINKS_MAX
from outbox_kernel.infrastructure.telemetry.spans import COUNT, EVENT_TYPE, MESSAGE_ID, TYPE, origin, within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextvars import Token

    from opentelemetry.trace import Span, SpanContext

    from outbox_kernel.infrastructure.telemetry.counting import Run, ServerClock, Verdict
    from outbox_kernel.infrastructure.telemetry.spans import Spans
    from outbox_kernel.kernel.context import Header

CONVERSATION = "messaging.message.conversation_id"
ROUTING_KEY = "messaging.rabbitmq.destination.routing_key"
AGGREGATE_TYPE, AGGREGATE_ID = "outbox.aggregate.type", "outbox.aggregate.id"
ATTEMPT = "outbox.attempt"

# What ends the `traceparent` of an event that was sampled, whether or not its ids are said to be random (bit 2).
_SAMPLED, _SAMPLED_AND_RANDOM = '-01"', '-03"'


class Traced(NamedTuple):
    """An event that was sampled when it was written."""

    row: Any
    headers: Mapping[str, Header]
    context: SpanContext
    waited_seconds: float | None
    """None: nobody knows, or it waited for another reason."""


class Working:
    """A run, or an event on its way to a broker: the current span until it ends."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._token: Token[Context] = contexts.attach(trace.set_span_in_context(span))

    def end(self, verdict: Verdict | None) -> None:
        """End it; without a verdict it was given back, and is nobody's failure."""
        contexts.detach(self._token)
        if verdict is None:
            self._span.set_attribute(names.OUTCOME, "given_back")
        elif verdict.status != "done":
            told = {names.OUTCOME: outcome_of(verdict), names.ERROR: error_of(verdict) or OTHER_ERRORS}
            self._span.set_attributes(told)
            reason = (verdict.error_message or "").partition("\n")[0]
            self._span.set_status(Status(StatusCode.ERROR, reason))
        self._span.end()


@attrs.frozen
class RunSpans:
    """Makes those of one subscription."""

    spans: Spans
    clock: ServerClock
    labels: Mapping[str, str]
    """Whose they are, as the messaging conventions name it."""

    def begin(self, run: Run) -> Working | None:
        """Begin the span of a run, and say how long its events have waited; None: none of them was sampled."""
        text = run.row["headers"]
        if run.rows is None and _SAMPLED not in text and _SAMPLED_AND_RANDOM not in text:
            return None
        traced = self._traced(run)
        return Working(self._span_over(run, traced)) if traced else None

    def _traced(self, run: Run) -> list[Traced]:
        found = []
        for row in (run.rows or (run.row,))[:LINKS_MAX]:
            headers = json.loads(row["headers"])
            context = origin(headers)
            if context is not None:
                waited = None if run.attempts else self.clock.waited_seconds(row, run.started)
                found.append(Traced(row, headers, context, waited))
        return found

    def _span_over(self, run: Run, traced: Sequence[Traced]) -> Span:
        now, first = time.time_ns(), traced[0]
        is_send = self.labels[names.OPERATION] == "send"
        given: dict[str, Any] = {
            "name": f"{self.labels[names.OPERATION]} {self.labels[names.SUBSCRIPTION]}",
            "kind": SpanKind.CLIENT if is_send else SpanKind.CONSUMER,
            "attributes": self._attributes(first, run.attempts + 1)
            if run.rows is None
            else {**self._common, COUNT: len(run.rows)},
        }
        if self.spans.is_one:
            waits = [self._wait(each, now) for each in traced]
            links = [Link(each.context) for each in traced[1:]]
            return self.spans.tracer.start_span(context=within(waits[0]), links=links, **given)
        links = [Link(each.context) for each in traced]
        span = self.spans.tracer.start_span(context=Context(), links=links, **given)
        for each in traced:
            self._wait(each, now, linked=span.get_span_context())
        return span

    def _wait(self, each: Traced, until_ns: int, *, linked: SpanContext | None = None) -> SpanContext:
        """Make the span of an event's time in the outbox, and return its context, or that of who wrote it."""
        if each.waited_seconds is None:
            return each.context
        span = self.spans.tracer.start_span(
            f"wait {self.labels[names.SUBSCRIPTION]}",
            within(each.context),
            attributes={**self._attributes(each, 1), names.OPERATION: "wait", TYPE: "wait"},
            links=[] if linked is None else [Link(linked)],
            start_time=until_ns - round(each.waited_seconds * 1e9),
        )
        span.end(until_ns)
        return span.get_span_context()

    @property
    def _common(self) -> dict[str, Any]:
        return {**self.labels, TYPE: self.labels[names.OPERATION]}

    def _attributes(self, each: Traced, attempt: int) -> dict[str, Any]:
        row = each.row
        told = {
            **self._common,
            MESSAGE_ID: str(row["event_id"]),
            EVENT_TYPE: row["event_type"],
            ATTEMPT: attempt,
        }
        if self.labels[names.SYSTEM] == "rabbitmq":
            told[ROUTING_KEY] = row["event_type"]
        if row["aggregate_id"] is not None:
            told[AGGREGATE_TYPE] = row["aggregate_type"]
            told[AGGREGATE_ID] = row["aggregate_key"] or str(row["aggregate_id"])
        if each.headers.get("correlation_id"):
            told[CONVERSATION] = str(each.headers["correlation_id"])
        return told
