"""The dashboard as an ASGI application, for a server of its own or to be mounted in another one's (O3)."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles

from outbox_kernel.infrastructure.dashboard.actions import ACTIONS
from outbox_kernel.infrastructure.dashboard.limits import STATIC_SECONDS
from outbox_kernel.infrastructure.dashboard.live import Live
from outbox_kernel.infrastructure.dashboard.operator import AT_THIS_MACHINE, Operator, Right
from outbox_kernel.infrastructure.dashboard.pages import PAGES
from outbox_kernel.infrastructure.dashboard.refusing import OPERATOR, refusal_of
from outbox_kernel.infrastructure.dashboard.rendering import STATIC
from outbox_kernel.infrastructure.dashboard.sealing import TOKEN_FIELD, Seal
from outbox_kernel.infrastructure.dashboard.security import (
    HEADERS,
    Refused,
    require_own_page,
    require_text,
    require_this_machine,
)
from outbox_kernel.infrastructure.dashboard.visit import Board, Visit, form_of
from outbox_kernel.infrastructure.errors import ArgumentRefused
from outbox_kernel.infrastructure.operations.glance import pulse
from outbox_kernel.infrastructure.operations.masking import know_events

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy.ext.asyncio import AsyncEngine
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from outbox_kernel.infrastructure.dashboard.visit import Form
    from outbox_kernel.infrastructure.settings import Settings

    Answer = Operator | Response | None
    Authorize = Callable[[Request], Answer | Awaitable[Answer]]
    Page = Callable[[Visit], Awaitable[Response]]
    Action = Callable[[Visit, Form], Awaitable[Response]]


class Dashboard:
    """Pages and actions over one outbox.

    `authorize` is given each request and says who asks, by an `Operator`; None refuses, and a response of its own (to
    log in) is sent instead. Without it only this machine itself is answered. `prefix` is the path below which a proxy
    shows it, where the server does not say so. Several processes behind one address need one `key`, by which forms are
    known.
    """

    def __init__(
        self,
        settings: Settings,
        engine: AsyncEngine,
        *,
        authorize: Authorize | None = None,
        prefix: str = "",
        key: str | None = None,
    ) -> None:
        if authorize is not None and not callable(authorize):
            raise ArgumentRefused(
                "authorize", "is nothing that can be called with a request: give a function"
            )
        self._authorize = authorize
        self._prefix = _prefix(prefix)
        self._knows_events = False
        self._board = Board(settings, engine, Seal(key), Live(self._look))
        self._router = Router(
            [
                *(
                    Route(path, self._page(page, right), methods=["GET"])
                    for path, (page, right) in PAGES.items()
                ),
                *(
                    Route(f"/do{path}", self._action(action, right), methods=["POST"])
                    for path, (action, right) in ACTIONS.items()
                ),
                Mount("/static", _Static(directory=STATIC)),
            ],
            redirect_slashes=False,
            default=_nowhere,
        )

    async def check(self) -> None:
        """Look once, and raise whatever keeps pages from being shown."""
        await self._look()

    def close(self) -> None:
        """End what is streamed to browsers, for good, so that the server can stop."""
        self._board.live.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; of a server's own life nothing need be known here."""
        if scope["type"] == "lifespan":
            await _live_and_die(receive, send)
        elif scope["type"] == "http":
            await self._answer(self._placed(scope), receive, _with_headers(send))
        else:
            await send({"type": "websocket.close", "code": 1000})

    def _placed(self, scope: Scope) -> Scope:
        """Say where the dashboard is: where it is mounted, and below the prefix of a proxy, whoever takes that away."""
        root = str(scope.get("root_path", "")).rstrip("/")
        within = _below(_below(scope["path"], root), self._prefix)
        root += self._prefix
        # Without the handlers of whoever has mounted it, which would answer our errors in their way.
        kept = {name: value for name, value in scope.items() if name != "starlette.exception_handlers"}
        return {**kept, "root_path": root, "path": root + within}

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, root = Request(scope, receive), scope["root_path"]
        try:
            if self._authorize is None:
                require_this_machine(request)
            # Without its slash, what a page names beside itself would be looked for beside the dashboard.
            is_bare = scope["path"] == scope["root_path"]
            answer: ASGIApp = RedirectResponse(f"{scope['root_path']}/", 307) if is_bare else self._router
            await answer(scope, receive, send)
        except Exception as error:
            # Where files are looked for it is told to be further down, and links of the page would lead there.
            scope["root_path"] = root
            refusal = refusal_of(request, error)
            if refusal is None:
                raise
            await refusal(scope, receive, send)

    def _page(self, page: Page, right: Right) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            visit = await self._visit(request, right)
            return visit if isinstance(visit, Response) else await page(visit)

        return endpoint

    def _action(self, action: Action, right: Right) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            require_own_page(request)
            visit = await self._visit(request, right)
            if isinstance(visit, Response):
                return visit
            form = await form_of(request)
            self._board.seal.require_token(request, form.get(TOKEN_FIELD) or "", visit.operator)
            return await action(visit, form)

        return endpoint

    async def _visit(self, request: Request, right: Right) -> Visit | Response:
        """Let somebody in who may do this, or raise why not."""
        operator = AT_THIS_MACHINE if self._authorize is None else await self._asked(request)
        if isinstance(operator, Response):
            return operator
        request.scope[OPERATOR] = operator
        for needed in (Right.VIEW, right):
            if not operator.may(needed):
                raise Refused(403, f"{operator.who} has no right to {needed} here", f"right {needed}")
        require_text(request.query_params.multi_items())
        if not self._knows_events:
            know_events(self._board.settings)
            self._knows_events = True
        seal = self._board.seal
        return Visit(request, operator, self._board, seal.session_of(request) or seal.new_session())

    async def _asked(self, request: Request) -> Operator | Response:
        assert self._authorize is not None  # noqa: S101 - asked for only where it is there
        answer: Any = self._authorize(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is None:
            raise Refused(403, "you are not let in here: ask whoever runs this outbox", "authorize")
        if not isinstance(answer, Operator | Response):
            raise ArgumentRefused(
                "authorize",
                f"has returned a {type(answer).__name__}: let it return an Operator, a response, or None",
            )
        return answer

    async def _look(self) -> object:
        async with self._board.looking() as opened:
            return await pulse(opened)


class _Static(StaticFiles):
    """The files beside the pages; what changes them changes their addresses."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers["cache-control"] = f"public, max-age={STATIC_SECONDS}, immutable"
        return response


def _prefix(given: str) -> str:
    prefix = given.strip("/")
    if not given or not prefix:
        return ""
    if not all(part and part not in {".", ".."} and part.isprintable() for part in prefix.split("/")):
        raise ArgumentRefused("prefix", f"is {given!r}, which is no path: write one such as /ops/outbox")
    return f"/{prefix}"


def _below(path: str, root: str) -> str:
    return path.removeprefix(root) if path == root or path.startswith(f"{root}/") else path


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            told = {name.lower() for name, _ in message["headers"]}
            added = [(name, value) for name, value in _HEADERS if name not in told]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return sending


_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


async def _nowhere(*_: object) -> None:
    raise HTTPException(404)


async def _live_and_die(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
