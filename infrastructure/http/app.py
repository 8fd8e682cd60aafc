"""The one application that serves what all contexts bring, behind one gate."""

from __future__ import annotations

from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from outbox_kernel.infrastructure.discovery import context_packages
from outbox_kernel.infrastructure.http import graphql, health
from outbox_kernel.infrastructure.http.discovery import apis_of
from outbox_kernel.infrastructure.http.gate import Gate
from outbox_kernel.infrastructure.http.openapi import EVERYWHERE, document
from outbox_kernel.infrastructure.http.settings import HttpSettings
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from lagom import Container
    from starlette.requests import Request

    from outbox_kernel.infrastructure.http.authentication import Authenticator
    from outbox_kernel.infrastructure.telemetry.metrics import Metrics

DOCS, OPENAPI = "/docs", "/openapi.json"
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
HEALTH = (health.LIVE, health.READY)


def create_app(
    container: Container,
    authenticator: Authenticator,
    settings: HttpSettings | None = None,
    *,
    is_alive: Callable[[], bool] = lambda: True,
    metrics: Metrics | None = None,
) -> FastAPI:
    """Assemble the API of all contexts.

    Its health tells whether it `is_alive`: of a relay in the same process that is `outbox.is_alive`. In `metrics`, if
    those are given, requests are counted. Who made the container and its engine closes them, after the application.
    """
    settings = settings or HttpSettings()
    app = FastAPI(
        title="outbox-kernel",
        version=_version(),
        description="Every address but those of health needs a token; what goes wrong is told as RFC 9457 says.",
        docs_url=DOCS if settings.docs else None,
        openapi_url=OPENAPI if settings.docs else None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
        # Of OpenTelemetry: who asks again and again whether it lives is on nobody's way.
        telemetry={"exclude": lambda scope: scope.get("path") in HEALTH},
    )
    app.state.health = found = health.Health(container, lambda: not is_alive())
    app.include_router(health.router)
    _include_contexts(app, container[Settings], settings.graphql_bytes_max)
    public = frozenset((*HEALTH, *((DOCS, OPENAPI) if settings.docs else ())))
    app.openapi = lambda: document(app, public)  # type: ignore[method-assign]  # FastAPI's own way to extend it
    # The framework's own errors, too, are the gate's to answer.
    for kind in (HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _leave_to_gate)
    gate: dict[str, Any] = {"container": container, "authenticator": authenticator, "settings": settings}
    requests = None if metrics is None else metrics.requests
    app.add_middleware(Gate, **gate, public=public, on_outage=found.doubt, requests=requests)
    return app


def _include_contexts(app: FastAPI, settings: Settings, graphql_bytes_max: int) -> None:
    apis = apis_of(context_packages(settings))
    for api in apis:
        if api.router is not None:
            app.include_router(api.router, responses=EVERYWHERE)
    if (router := graphql.router_of(apis, graphql_bytes_max)) is not None:
        app.include_router(router)


async def _leave_to_gate(request: Request, error: Exception) -> Any:
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # The framework names only the methods of the first route at this address.
        error.headers = {"allow": ", ".join(_methods_at(request))}
    raise error


def _methods_at(request: Request) -> list[str]:
    routes = request.app.router.routes
    return [
        method
        for method in _METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]


def _version() -> str:
    try:
        return version("outbox-kernel")
    except PackageNotFoundError:
        return "checkout"
