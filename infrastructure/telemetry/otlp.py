"""Spans and numbers on their way to a collector, by OpenTelemetry's own exporters (O4).

A collector that is slow or away is nobody's trouble: what is sent goes by threads that hold up neither the event loop
nor the end of the process, and what does not arrive is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

from outbox_kernel.infrastructure.telemetry.limits import FAREWELL_SECONDS_MAX, INTERVAL_MILLISECONDS
from outbox_kernel.infrastructure.telemetry.otlp_metrics import Exported

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind, TraceState
    from opentelemetry.util.types import Attributes

    from outbox_kernel.infrastructure.telemetry.asgi import MetricsApp

_log = logging.getLogger("outbox.telemetry")

INTERVAL_VARIABLE = "OTEL_METRIC_EXPORT_INTERVAL"


class FollowsLinks(Sampler):
    """Takes what begins a trace and links to what was sampled.

    By the others alone, where a tenth of all is sampled, a tenth of those would have their end.
    """

    def __init__(self, others: Sampler) -> None:
        self._others = others
        """What decides about all else, as the environment says."""

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Decide."""
        begins = not trace.get_current_span(parent_context).get_span_context().is_valid
        if begins and any(link.context.trace_flags.sampled for link in links or ()):
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)
        return self._others.should_sample(
            parent_context, trace_id, name, kind, attributes, links, trace_state
        )

    def get_description(self) -> str:
        """Say what it is."""
        return f"FollowsLinks{{{self._others.get_description()}}}"


@asynccontextmanager
async def pushing(
    metrics: Callable[[], MetricsApp], service: str, signals: Collection[str]
) -> AsyncIterator[None]:
    """Push while the block runs, and what is left at its end."""
    resource = resource_of(service)
    provider = _set_provider(resource) if "TRACES" in signals else None
    pushing = Pushing(metrics(), resource) if "METRICS" in signals else None
    again = asyncio.create_task(pushing.again(), name="outbox-push-metrics") if pushing else None
    _log.info(
        "OpenTelemetry's collector is told",
        extra={"action": "telemetry.pushed", "service": str(resource.attributes[SERVICE_NAME])},
    )
    try:
        yield
    finally:
        if again is not None:
            again.cancel()
            await asyncio.wait([again])
        await _say_farewell(pushing, provider)


def _set_provider(resource: Resource) -> TracerProvider | None:
    """Have this process's spans taken; None, if somebody has seen to that already."""
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.sampler = FollowsLinks(provider.sampler)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


async def _say_farewell(pushing: Pushing | None, provider: TracerProvider | None) -> None:
    """Send what is left, as far as that takes no time."""
    left: list[Awaitable[Any]] = []
    if pushing is not None:
        left.append(pushing.push())
    if provider is not None:
        left.append(in_thread(provider.shutdown))
    with suppress(TimeoutError):
        async with asyncio.timeout(FAREWELL_SECONDS_MAX):
            await asyncio.gather(*left)
    if pushing is not None:
        pushing.exporter.shutdown()


class Pushing:
    """Sends the numbers now and then."""

    def __init__(self, metrics: MetricsApp, resource: Resource) -> None:
        self.exporter = OTLPMetricExporter()
        self._metrics, self._exported = metrics, Exported(resource)
        self._seconds = interval_seconds()

    async def again(self) -> None:
        """Send them again and again."""
        while True:
            await asyncio.sleep(self._seconds)
            await self.push()

    async def push(self) -> None:
        """Send them once."""
        data = self._exported.data(await self._metrics.samples())
        try:
            result = await in_thread(lambda: self.exporter.export(data))
        except Exception:  # noqa: BLE001 - whatever it is, the next time it may go well
            _log.exception("the metrics could not be pushed", extra={"action": "telemetry.not_pushed"})
            return
        if result is not MetricExportResult.SUCCESS:
            _log.warning(
                "OpenTelemetry's collector did not take the metrics",
                extra={"action": "telemetry.not_pushed"},
            )


def resource_of(service: str) -> Resource:
    """Return what the environment says of this process, under this name unless it gives another."""
    found = Resource.create()
    if str(found.attributes[SERVICE_NAME]).startswith("unknown_service"):
        found = found.merge(Resource({SERVICE_NAME: service}))
    return found


def interval_seconds(environ: Mapping[str, str] = os.environ) -> float:
    """Return how often numbers are pushed; what is no number counts as not said, as the library has it."""
    try:
        milliseconds = float(environ.get(INTERVAL_VARIABLE, "") or INTERVAL_MILLISECONDS)
    except ValueError:
        milliseconds = INTERVAL_MILLISECONDS
    return max(1.0, milliseconds) / 1_000


def in_thread(call: Callable[[], Any]) -> asyncio.Future[Any]:
    """Run it in a thread that nobody waits for at the end of the process."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def tell(result: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result(result) if error is None else ended.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            failure = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(tell, result, failure)

    threading.Thread(target=run, name="outbox-push", daemon=True).start()
    return ended
