"""A collector of OpenTelemetry: takes what is sent by its protocol, and reads it with the official messages."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from attrs import Factory, define, frozen
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@frozen
class Seen:
    """A span, and the process that it is of."""

    service: str
    span: Span

    @property
    def name(self) -> str:
        return f"{self.service}: {self.span.name}"


@define
class Collector:
    """What has arrived so far."""

    url: str = ""
    spans: list[Seen] = Factory(list)
    metrics: dict[tuple[str, str], Any] = Factory(dict)
    """The newest of each service and name."""
    _turn: Any = Factory(Lock)

    def take(self, path: str, body: bytes) -> None:
        """Take what was sent there."""
        with self._turn:
            if path == "/v1/traces":
                self._take_spans(ExportTraceServiceRequest.FromString(body))
            elif path == "/v1/metrics":
                self._take_metrics(ExportMetricsServiceRequest.FromString(body))
            else:
                raise LookupError(path)

    def named(self, *names: str) -> list[Seen]:
        """The spans of these names, as `service: name`, in the order of the names."""
        with self._turn:
            return [seen for name in names for seen in self.spans if seen.name == name]

    def _take_spans(self, request: ExportTraceServiceRequest) -> None:
        for of_resource in request.resource_spans:
            service = _service(of_resource.resource)
            for scope in of_resource.scope_spans:
                self.spans += [Seen(service, span) for span in scope.spans]

    def _take_metrics(self, request: ExportMetricsServiceRequest) -> None:
        for of_resource in request.resource_metrics:
            service = _service(of_resource.resource)
            for scope in of_resource.scope_metrics:
                for metric in scope.metrics:
                    self.metrics[service, metric.name] = metric


def _service(resource: Any) -> str:
    [found] = [each.value.string_value for each in resource.attributes if each.key == "service.name"]
    return str(found)


@contextmanager
def collecting() -> Iterator[Collector]:
    """One that takes what is sent to its URL."""
    collector = Collector()

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
