"""What is told of a request beside its line in the log: a number, and a span (O4)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.telemetry.tracing import tracing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from starlette.types import Scope

    from outbox_kernel.infrastructure.http.gate import Exchange
    from outbox_kernel.infrastructure.telemetry.counting import RequestCounts

_METHODS = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"))
_OTHER = "_OTHER"
"""As the conventions of HTTP call what anybody may have made up."""


def count(requests: RequestCounts, scope: Scope, exchange: Exchange) -> None:
    """Count a request that was answered, or whose client has left."""
    requests.note(_method(scope), _route(scope), exchange.status, scope["scheme"], exchange.seconds)


@contextmanager
def traced(scope: Scope, headers: Mapping[str, str], exchange: Exchange) -> Iterator[None]:
    """Have it traced, if anybody takes spans."""
    if (spans := tracing.spans()) is None:
        yield
        return
    with spans.serving(_method(scope), scope["scheme"], scope["path"], headers) as serving:
        try:
            yield
        finally:
            serving.answered(_route(scope), exchange.status)


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in _METHODS else _OTHER


def _route(scope: Scope) -> str:
    """Return the address as the application has it, with names in place of ids; none where it has no such address."""
    return str(getattr(scope.get("route"), "path", ""))
