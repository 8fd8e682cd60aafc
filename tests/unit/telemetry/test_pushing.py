"""What goes to a collector of OpenTelemetry, when, and that it holds up nobody (O4)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Decision, ParentBased
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags

from outbox_kernel.infrastructure.telemetry import Metrics, MetricsApp, otlp, pushing
from outbox_kernel.infrastructure.telemetry.otlp import (
    FollowsLinks,
    Pushing,
    in_thread,
    interval_seconds,
    resource_of,
)
from outbox_kernel.infrastructure.telemetry.otlp_metrics import Exported
from outbox_kernel.infrastructure.telemetry.pushing import pushed, wanted
from outbox_kernel.infrastructure.telemetry.tracing import tracing
from tests.tracing import traced
from tests.unit.telemetry.runs import LABELS, Ended, Over

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
NOWHERE = "http://127.0.0.1:9"


# --- whether ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "signals"),
    [
        ({}, []),
        ({ENDPOINT: " "}, []),
        ({ENDPOINT: NOWHERE}, ["TRACES", "METRICS"]),
        ({ENDPOINT: NOWHERE, "OTEL_METRICS_EXPORTER": "none"}, ["TRACES"]),
        ({ENDPOINT: NOWHERE, "OTEL_TRACES_EXPORTER": "None"}, ["METRICS"]),
        ({ENDPOINT: NOWHERE, "OTEL_SDK_DISABLED": "true"}, []),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": NOWHERE}, ["METRICS"]),
    ],
)
def test_what_the_environment_names_a_collector_for_is_pushed(
    environ: dict[str, str], signals: list[str]
) -> None:
    assert [each for each in ("TRACES", "METRICS") if wanted(each, environ)] == signals


async def test_without_a_collector_nothing_of_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENDPOINT, raising=False)
    async with pushed(lambda: pytest.fail("nobody asks"), "outbox-relay"):
        pass


@pytest.mark.parametrize("library", ["opentelemetry_missing.sdk", "outbox_missing"])
async def test_where_the_extra_is_missing_one_line_says_so(
    library: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT, NOWHERE)
    monkeypatch.setattr(pushing, "_LIBRARIES", (library,))
    async with pushed(lambda: pytest.fail("nobody asks"), "outbox-relay"):
        pass
    assert "pip install 'outbox-kernel[telemetry]'" in caplog.text


@pytest.mark.parametrize("mode", ["off", "linked"])
async def test_who_wants_no_traces_pushes_none(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    @asynccontextmanager
    async def noted(_: object, __: str, signals: list[str]) -> AsyncIterator[None]:
        asked.append(signals)
        yield

    monkeypatch.setenv(ENDPOINT, NOWHERE)
    monkeypatch.setattr(otlp, "pushing", noted)
    monkeypatch.setattr(tracing, "mode", mode)
    async with pushed(lambda: MetricsApp(Metrics()), "outbox-relay"):
        pass
    assert asked == [["METRICS"] if mode == "off" else ["TRACES", "METRICS"]]


async def test_numbers_alone_are_pushed_a_last_time_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[MetricsData] = []

    def export(_: object, data: MetricsData) -> MetricExportResult:
        taken.append(data)
        return MetricExportResult.SUCCESS

    monkeypatch.setattr(OTLPMetricExporter, "export", export)
    async with otlp.pushing(lambda: MetricsApp(Metrics()), "outbox-relay", ["METRICS"]):
        assert taken == []
    assert len(taken) == 1


async def test_who_has_set_up_traces_keeps_them() -> None:
    with traced() as traces:
        async with otlp.pushing(lambda: pytest.fail("nobody asks"), "outbox-relay", ["TRACES"]):
            assert trace.get_tracer_provider() is traces.provider
        with traces.provider.get_tracer("app").start_as_current_span("still there"):
            pass
        assert len(traces.named("still there")) == 1


# --- numbers ------------------------------------------------------------------------------------------


async def exported() -> MetricsData:
    metrics = Metrics()
    metrics.of_relay().renewals, metrics.of_relay().hears = 3, True
    handler = metrics.of_subscription(LABELS)
    for verdict in (Ended(), Ended("dead", "Reject: no")):
        handler.count(Over(), verdict)
    return Exported(Resource({"service.name": "shop"})).data(await metrics.samples())


async def test_each_number_is_what_opentelemetry_has_of_its_kind() -> None:
    [of_resource] = (await exported()).resource_metrics
    assert of_resource.resource.attributes["service.name"] == "shop"
    [scope] = of_resource.scope_metrics
    assert scope.scope.name == "outbox_kernel"
    found = {metric.name: metric for metric in scope.metrics}
    renewals = found["outbox.lease.renewals"]
    assert (renewals.unit, type(renewals.data).__name__) == ("{renewal}", "Sum")
    assert [point.value for point in renewals.data.data_points] == [3]  # type: ignore[union-attr]  # of a sum
    remaining = found["outbox.lease.remaining"]
    assert (remaining.unit, type(remaining.data).__name__) == ("s", "Gauge")
    runs = found["messaging.process.duration"]
    assert (runs.unit, type(runs.data).__name__) == ("s", "Histogram")
    points = runs.data.data_points
    assert [(point.attributes or {}).get("outbox.outcome") for point in points] == ["done", "dead"]
    assert [point.count for point in points] == [1, 1]  # type: ignore[union-attr]  # of a histogram


async def test_an_exporter_takes_it() -> None:
    """As its own encoder has it."""
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

    [of_resource] = encode_metrics(await exported()).resource_metrics
    [scope] = of_resource.scope_metrics
    [runs] = [metric for metric in scope.metrics if metric.name == "messaging.process.duration"]
    point = runs.histogram.data_points[0]
    assert (point.count, sum(point.bucket_counts)) == (1, 1)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert not point.HasField("min")


@pytest.mark.parametrize(("said", "seconds"), [("", 60.0), ("5000", 5.0), ("soon", 60.0), ("0", 0.001)])
def test_how_often_is_as_opentelemetry_has_it(said: str, seconds: float) -> None:
    assert interval_seconds({"OTEL_METRIC_EXPORT_INTERVAL": said}) == seconds


async def test_numbers_are_pushed_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1")
    taken: asyncio.Queue[MetricsData] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def export(_: object, data: MetricsData) -> MetricExportResult:
        loop.call_soon_threadsafe(taken.put_nowait, data)
        return MetricExportResult.SUCCESS

    monkeypatch.setattr(OTLPMetricExporter, "export", export)
    pushing_ = Pushing(MetricsApp(Metrics()), Resource({}))
    task = asyncio.create_task(pushing_.again())
    await taken.get()
    await taken.get()
    task.cancel()
    await asyncio.wait([task])
    pushing_.exporter.shutdown()


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (MetricExportResult.FAILURE, "did not take the metrics"),
        (ValueError("nobody thought of this"), "the metrics could not be pushed"),
    ],
)
async def test_what_is_not_taken_is_told_and_no_more(
    outcome: object, line: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def export(*_: object) -> object:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(OTLPMetricExporter, "export", export)
    pushing_ = Pushing(MetricsApp(Metrics()), Resource({}))
    with caplog.at_level(logging.WARNING):
        await pushing_.push()
    pushing_.exporter.shutdown()
    assert line in caplog.text


# --- traces -------------------------------------------------------------------------------------------


def link(flags: int) -> Link:
    return Link(SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(flags)))


@pytest.mark.parametrize(("flags", "decision"), [(1, Decision.RECORD_AND_SAMPLE), (0, Decision.DROP)])
def test_a_run_is_sampled_where_what_it_comes_from_was(flags: int, decision: Decision) -> None:
    """O4: whatever the environment says of traces that begin here."""
    sampler = FollowsLinks(ParentBased(ALWAYS_OFF))
    assert sampler.should_sample(Context(), 7, "process shop.Pack", links=[link(flags)]).decision is decision
    assert sampler.get_description().startswith("FollowsLinks{ParentBased{root:AlwaysOffSampler")


def test_within_a_trace_its_own_flag_decides() -> None:
    parent = NonRecordingSpan(SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(0)))
    within = trace.set_span_in_context(parent, Context())
    sampler = FollowsLinks(ParentBased(ALWAYS_ON))
    assert sampler.should_sample(within, 1, "query", links=[link(1)]).decision is Decision.DROP


def test_a_process_is_called_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    assert resource_of("outbox-relay").attributes["service.name"] == "outbox-relay"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    assert resource_of("outbox-relay").attributes["service.name"] == "shop"


# --- threads ------------------------------------------------------------------------------------------


async def test_what_is_sent_by_a_thread_is_awaited_like_anything_else() -> None:
    assert await in_thread(lambda: threading.current_thread().daemon)
    with pytest.raises(ValueError, match="no"):
        await in_thread(lambda: int("no"))


async def test_who_has_no_more_patience_leaves_it() -> None:
    leave, ended = threading.Event(), threading.Event()

    def wait() -> None:
        leave.wait()
        ended.set()

    waiting = in_thread(wait)
    waiting.cancel()
    leave.set()
    await asyncio.to_thread(ended.wait)
    await asyncio.sleep(0)


def test_a_loop_that_has_ended_is_told_of_nothing() -> None:
    leave, ended = threading.Event(), threading.Event()

    async def begin() -> None:
        in_thread(leave.wait).add_done_callback(lambda _: None)

    asyncio.run(begin())
    for thread in threading.enumerate():
        if thread.name == "outbox-push":
            leave.set()
            thread.join()
            ended.set()
    assert ended.is_set()
