"""Spans: where an event has been, from the request that wrote it to the handler on another machine (K10, O4).

The context in which an event was written travels with it, as `traceparent` among its headers. What comes later links to
that, or is a part of that trace where one trace is asked for. What was not sampled makes no spans.

Names follow OpenTelemetry's messaging conventions. The whole module needs its API, which the extra `telemetry` brings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from outbox_kernel.infrastructure.telemetry import instruments as names
from outbox_kernel.infrastructure.telemetry.limits import LINKS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.trace import Span, SpanContext, Tracer, TracerProvider

    from outbox_kernel.infrastructure.telemetry.counting import ServerClock
    from outbox_kernel.infrastructure.telemetry.run_spans import RunSpans
    from outbox_kernel.kernel.context import Header

TYPE = "messaging.operation.type"
MESSAGE_ID = "messaging.message.id"
COUNT = "messaging.batch.message_count"
EVENT_TYPE = "outbox.event.type"
OUTBOX = "outbox"

_HEADERS = ("traceparent", "tracestate")
_propagator = TraceContextTextMapPropagator()


def origin(headers: Mapping[str, Any]) -> SpanContext | None:
    """Return the context that an event was written in, if that was sampled."""
    found = trace.get_current_span(_propagator.extract(_texts(headers), Context())).get_span_context()
    return found if found.is_valid and found.trace_flags.sampled else None


def within(found: SpanContext) -> Context:
    """Return where spans are made that are parts of it."""
    return trace.set_span_in_context(trace.NonRecordingSpan(found), Context())


def _texts(headers: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name in _HEADERS if isinstance(value := headers.get(name), str)}


class Spans:
    """Makes them, by one provider."""

    def __init__(self, provider: TracerProvider, *, is_one: bool) -> None:
        self.provider = provider
        self.is_one = is_one
        """Whether all of an event's way is one trace."""
        self.tracer: Tracer = provider.get_tracer("outbox_kernel")

    def create(
        self, headers: Mapping[str, Header], events: Sequence[Any]
    ) -> tuple[dict[str, Header], Creating]:
        """Begin the span of events that are written now; return the headers that carry its context."""
        parent = contexts.get_current()
        if not trace.get_current_span(parent).get_span_context().is_valid:
            parent = _propagator.extract(_texts(headers), parent)
        attributes: dict[str, Any] = {**_common("create"), names.DESTINATION: OUTBOX}
        if len(events) == 1:
            attributes |= {MESSAGE_ID: str(events[0].event_id), EVENT_TYPE: events[0].event_type}
        else:
            attributes[COUNT] = len(events)
        span = self.tracer.start_span(
            f"create {OUTBOX}", parent, kind=SpanKind.PRODUCER, attributes=attributes
        )
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, trace.set_span_in_context(span))
        kept = {name: headers[name] for name in headers if name not in _HEADERS}
        return {**kept, **carrier}, Creating(span)

    def of_runs(self, clock: ServerClock, labels: Mapping[str, str]) -> RunSpans:
        """Return what makes those of one subscription."""
        from outbox_kernel.infrastructure.telemetry.run_spans import RunSpans  # noqa: PLC0415 - it needs this module

        return RunSpans(self, clock, labels)

    def received(self, system: str, queue: str, headers: Sequence[Mapping[str, Any]], began_ns: int) -> None:
        """Make the span of messages that were taken from a queue, and are stored by now."""
        found = [context for each in headers if (context := origin(each)) is not None][:LINKS_MAX]
        attributes = {**_common("receive"), names.SYSTEM: system, names.DESTINATION: queue}
        name, kind = f"receive {queue}", SpanKind.CLIENT
        if self.is_one:
            made = [
                self.tracer.start_span(
                    name, within(context), kind=kind, attributes=attributes, start_time=began_ns
                )
                for context in found
            ]
        else:
            attributes[COUNT] = len(headers)
            links = [Link(context) for context in found]
            made = [
                self.tracer.start_span(
                    name, Context(), kind=kind, attributes=attributes, links=links, start_time=began_ns
                )
            ][: len(found)]
        for span in made:
            span.end()


@attrs.frozen
class Creating:
    """Events that are written, and are there once their transaction has committed."""

    span: Span

    def end(self, *, is_durable: bool) -> None:
        """End it: they are, or they are gone."""
        if not is_durable:
            self.span.set_status(StatusCode.ERROR, "rolled back")
        self.span.end()


def current_ids() -> dict[str, str]:
    """Return what a line of the log says of the span in which it is written."""
    found = trace.get_current_span().get_span_context()
    if not found.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(found.trace_id), "span_id": trace.format_span_id(found.span_id)}


def _common(operation: str) -> dict[str, Any]:
    return {names.SYSTEM: OUTBOX, names.OPERATION: operation, TYPE: operation}
