"""Numbers as OpenTelemetry's exporters take them (O4).

They are counted here in plain integers, histograms included. No instrument of OpenTelemetry can be handed a histogram
that is counted already, and to record each run by one costs as much as the run. So what it exports is made of these.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from outbox_kernel.infrastructure.telemetry.counting import Histogram
from outbox_kernel.infrastructure.telemetry.instruments import ALL, BOUNDS_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from opentelemetry.sdk.resources import Resource

    from outbox_kernel.infrastructure.telemetry.instruments import Instrument
    from outbox_kernel.infrastructure.telemetry.metrics import Sample

SCOPE = "outbox_kernel"


class Exported:
    """The numbers of one process, from its start on."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._scope = InstrumentationScope(SCOPE)
        self._began = time.time_ns()

    def data(self, samples: Iterable[Sample]) -> MetricsData:
        """Return the numbers as they are now."""
        by_name: dict[str, list[Sample]] = {}
        for sample in samples:
            by_name.setdefault(sample.instrument.name, []).append(sample)
        now = time.time_ns()
        metrics = [
            Metric(each.name, each.help, each.unit, self._points(each, by_name[each.name], now))
            for each in ALL
            if each.name in by_name
        ]
        scopes = [ScopeMetrics(self._scope, metrics, "")]
        return MetricsData([ResourceMetrics(self._resource, scopes, "")])

    def _points(
        self, instrument: Instrument, samples: Sequence[Sample], now: int
    ) -> Sum | Gauge | HistogramData:
        points: list[Any] = [self._point(each, now) for each in samples]
        if instrument.kind == "gauge":
            return Gauge(points)
        if instrument.kind == "counter":
            return Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        return HistogramData(points, AggregationTemporality.CUMULATIVE)

    def _point(self, sample: Sample, now: int) -> NumberDataPoint | HistogramDataPoint:
        value, labels = sample.value, dict(sample.labels)
        if not isinstance(value, Histogram):
            return NumberDataPoint(labels, self._began, now, value)
        unknown: Any = None  # the least and the most
        return HistogramDataPoint(
            *(labels, self._began, now, sum(value.counts), value.seconds),
            *(value.counts, BOUNDS_SECONDS, unknown, unknown),
        )
