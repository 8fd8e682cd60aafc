"""Spans that a test looks at: a provider whose spans stay in memory, as if an application had set it up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from attrs import Factory, define
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler

from outbox_kernel.infrastructure.telemetry.tracing import tracing


@define
class Traces:
    """What was made of spans."""

    provider: TracerProvider
    exporter: InMemorySpanExporter = Factory(InMemorySpanExporter)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """Those that have ended, in that order."""
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        """Those of a name."""
        return [each for each in self.spans if each.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The one of a name."""
        [found] = self.named(name)
        return found


@contextmanager
def traced(mode: str = "linked", sampler: Sampler | None = None) -> Iterator[Traces]:
    """Make spans while the block runs."""
    traces = Traces(TracerProvider(sampler or ParentBased(ALWAYS_ON), shutdown_on_exit=False))
    traces.provider.add_span_processor(SimpleSpanProcessor(traces.exporter))
    # The process has one for good, once somebody has said so.
    with (
        patch.object(trace, "get_tracer_provider", lambda: traces.provider),
        patch.object(tracing, "mode", mode),
    ):
        yield traces


def context_of(span: ReadableSpan) -> trace.SpanContext:
    """Its own context."""
    found = span.get_span_context()
    assert found is not None
    return found


def trace_of(span: ReadableSpan) -> int:
    """The trace that it is a part of."""
    return context_of(span).trace_id


def linked_by(span: ReadableSpan) -> list[int]:
    """The spans that it links to."""
    return [link.context.span_id for link in span.links]


def id_of(span: ReadableSpan) -> int:
    """Its id."""
    return context_of(span).span_id


def parent_of(span: ReadableSpan) -> int | None:
    """The id of the span that it is a part of."""
    return None if span.parent is None else span.parent.span_id


def told(span: ReadableSpan) -> dict[str, Any]:
    """Its attributes."""
    return dict(span.attributes or {})
