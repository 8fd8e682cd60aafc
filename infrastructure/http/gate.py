"""What every request passes, in and out: its id, who asks, its limits, its scope, and an answer to whatever goes wrong.

Whatever is not named as public needs a principal, so that an endpoint can be forgotten, but not left open.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import TYPE_CHECKING

from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers

from outbox_kernel.infrastructure.container import scope as container_scope
from outbox_kernel.infrastructure.http.authentication import Principal, Unauthenticated
from outbox_kernel.infrastructure.http.bodies import ClientLeft, again, read_body
from outbox_kernel.infrastructure.http.limits import PATH_CHARACTERS_MAX, RETRY_SECONDS
from outbox_kernel.infrastructure.http.problems import (
    PROBLEM_TYPE,
    UNAVAILABLE,
    UNEXPECTED,
    Problem,
    problem_of,
)
from outbox_kernel.infrastructure.http.scope import put_container
from outbox_kernel.infrastructure.http.watching import count
from outbox_kernel.infrastructure.postgres.explain import causes_of
from outbox_kernel.kernel.clock import new_id
from outbox_kernel.kernel.context import event_context
from outbox_kernel.kernel.errors import InvalidContext

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from lagom import Container
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from outbox_kernel.infrastructure.http.authentication import Authenticator
    from outbox_kernel.infrastructure.http.settings import HttpSettings
    from outbox_kernel.infrastructure.telemetry.counting import RequestCounts

_log = logging.getLogger("outbox.http")

REQUEST_ID = "x-request-id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_POLICY_VIOLATION = 1008
_SERVER_ERROR = 500
_TRACE = ("traceparent", "tracestate")


class Gate:
    """ASGI middleware; the whole API is behind it."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        container: Container,
        authenticator: Authenticator,
        settings: HttpSettings,
        public: Collection[str],
        on_outage: Callable[[], None],
        requests: RequestCounts | None = None,
    ) -> None:
        self._app = app
        self._container = container
        self._authenticator = authenticator
        self._settings = settings
        self._public = frozenset(public)
        self._on_outage = on_outage
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let it pass, or say why not."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            # Nothing here is served by web socket, and none passes the checks below.
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        exchange = Exchange(_request_id(headers), send)
        try:
            await self._answer_in_time(scope, headers, receive, exchange)
        finally:
            if self._requests is not None:
                count(self._requests, scope, exchange)

    async def _answer_in_time(
        self, scope: Scope, headers: Headers, receive: Receive, exchange: Exchange
    ) -> None:
        limit = asyncio.timeout(self._settings.request_seconds_max)
        try:
            async with limit:
                # It begins a chain: what handlers record later inherits this, and is found by it with the first.
                with event_context(request_id=exchange.request_id, correlation_id=exchange.request_id):
                    await self._pass(scope, headers, receive, exchange)
        except ClientLeft:
            exchange.status = 499
        except Exception as error:
            problem = (
                self._too_slow() if isinstance(error, TimeoutError) and limit.expired() else problem_of(error)
            )
            if problem is UNAVAILABLE:
                self._on_outage()
            _tell(error, problem, exchange)
            if exchange.status:
                raise  # too late for another answer: the server cuts the connection
            _let_go(error)
            await exchange.send_problem(problem)
        finally:
            exchange.log(scope)

    async def _pass(self, scope: Scope, headers: Headers, receive: Receive, exchange: Exchange) -> None:
        if scope["path"] in self._public:
            await self._app(scope, receive, exchange.send)
            return
        exchange.principal = principal = await self._principal_of(headers)
        limits = self._settings.body_bytes_max, self._settings.body_values_max
        body = await read_body(headers, receive, *limits)
        async with container_scope(self._container) as container:
            container[Principal] = principal
            put_container(scope, container)
            with event_context(user_id=principal.user_id, **_trace_of(headers)):
                await self._app(scope, again(body, receive), exchange.send)

    async def _principal_of(self, headers: Headers) -> Principal:
        if len(headers.getlist("authorization")) > 1:
            raise Unauthenticated("there are two `Authorization` headers: send one")
        return await self._authenticator.principal_of(headers)

    def _too_slow(self) -> Problem:
        return Problem(
            503,
            "too_slow",
            f"the answer took longer than {self._settings.request_seconds_max:g} s and was given up; "
            "look whether it was done before you repeat it",
            headers={"retry-after": str(RETRY_SECONDS)},
        )


class Exchange:
    """One request and its answer: what is said of it in the log."""

    def __init__(self, request_id: str, send: Send) -> None:
        self.request_id = request_id
        self.status = 0
        self.principal: Principal | None = None
        self._send = send
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.perf_counter() - self._began

    async def send(self, message: Message) -> None:
        """Send on, with the request's id."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            added = [(REQUEST_ID.encode(), self.request_id.encode()), (b"x-content-type-options", b"nosniff")]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await self._send(message)

    async def send_problem(self, problem: Problem) -> None:
        """Answer with a problem."""
        body = problem.body(self.request_id)
        headers = {
            "content-type": PROBLEM_TYPE,
            "content-length": str(len(body)),
            "cache-control": "no-store",
            **problem.headers,
        }
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": problem.status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body})

    def log(self, scope: Scope) -> None:
        """Leave a line: no query and no body, which may hold secrets."""
        _log.info(
            "request",
            extra={
                "action": "api.request",
                "method": scope["method"],
                "path": scope["path"][:PATH_CHARACTERS_MAX],
                "status": self.status,
                "milliseconds": round(self.seconds * 1_000, 1),
                "request_id": self.request_id,
                **({} if self.principal is None else {"user_id": self.principal.user_id}),
            },
        )


def _tell(error: Exception, problem: Problem, exchange: Exchange) -> None:
    if problem.status < _SERVER_ERROR:
        return
    if problem is UNEXPECTED or exchange.status:
        _log.error(
            "a request failed unexpectedly",
            exc_info=error,
            extra={"action": "api.request.failed", "request_id": exchange.request_id},
        )
    else:
        _log.warning(
            "a request cannot be served now: %s",
            # Some have nothing to say, like a time limit; SQLAlchemy's have the statement below their text.
            str(error).partition("\n")[0] or problem.detail,
            extra={"action": "api.request.refused", "request_id": exchange.request_id},
        )


def _let_go(error: BaseException) -> None:
    """Let go of the frames that it came through, and of the body in them.

    Frames of the framework hold the error that holds them, and so all of it would stay until the collector comes by,
    which is seldom.
    """
    found = [*causes_of(error)]
    if isinstance(error, RequestValidationError):
        # Those that a validator has raised are kept beside what is told of them.
        found += [each["ctx"]["error"] for each in error.errors() if "error" in each.get("ctx", {})]
    for each in found:
        if isinstance(each, BaseException):
            each.__traceback__ = None


def _request_id(headers: Mapping[str, str]) -> str:
    given = headers.get(REQUEST_ID, "")
    return given if _REQUEST_ID.fullmatch(given) else str(new_id())


def _trace_of(headers: Headers) -> dict[str, str]:
    """Return the trace to carry on, if what was sent is one; its state means nothing without it."""
    found: dict[str, str] = {}
    for name in _TRACE:
        try:
            with event_context(**{name: headers[name]}):
                found[name] = headers[name]
        except (KeyError, InvalidContext):
            break
    return found
