"""What is counted of a request; its span FastAPI makes itself, where spans are taken (O4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope

    from outbox_kernel.infrastructure.http.gate import Exchange
    from outbox_kernel.infrastructure.telemetry.counting import RequestCounts

_METHODS = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"))
_OTHER = "_OTHER"
"""As the conventions of HTTP call what anybody may have made up."""


def count(requests: RequestCounts, scope: Scope, exchange: Exchange) -> None:
    """Count a request that was answered, or whose client has left."""
    requests.note(_method(scope), _route(scope), exchange.status, scope["scheme"], exchange.seconds)


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in _METHODS else _OTHER


def _route(scope: Scope) -> str:
    """Return the address as the application has it, with names in place of ids; none where it has no such address."""
    return str(getattr(scope.get("route"), "path", ""))
