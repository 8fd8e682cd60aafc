"""One request: who asks, what is at hand to answer it, and how the answer is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import attrs
from starlette.responses import HTMLResponse, RedirectResponse

from outbox_kernel.infrastructure.dashboard.limits import FORM_BYTES_MAX
from outbox_kernel.infrastructure.dashboard.rendering import address, render
from outbox_kernel.infrastructure.dashboard.sealing import THEME, TOKEN_FIELD
from outbox_kernel.infrastructure.dashboard.security import Refused, require_text
from outbox_kernel.infrastructure.operations.desk import desk
from outbox_kernel.infrastructure.operations.looking import looking

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from sqlalchemy.ext.asyncio import AsyncEngine
    from starlette.requests import Request
    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.live import Live
    from outbox_kernel.infrastructure.dashboard.operator import Operator, Right
    from outbox_kernel.infrastructure.dashboard.sealing import Notice, Seal
    from outbox_kernel.infrastructure.operations import Desk
    from outbox_kernel.infrastructure.settings import Settings

THEMES = ("auto", "light", "dark")


@attrs.frozen
class Board:
    """What all requests share."""

    settings: Settings
    engine: AsyncEngine
    seal: Seal
    live: Live

    def looking(self) -> AbstractAsyncContextManager[Desk]:
        """Open a desk to look from."""
        return looking(self.engine, self.settings)

    def acting(self) -> AbstractAsyncContextManager[Desk]:
        """Open a desk to change something at, over a connection of its own."""
        return desk(self.settings, self.engine)


@attrs.frozen
class Visit:
    """A request of somebody who may see the page."""

    request: Request
    operator: Operator
    board: Board
    session: str

    @property
    def base(self) -> str:
        """Where the dashboard is mounted."""
        return str(self.request.scope.get("root_path", ""))

    def asked(self, name: str) -> str | None:
        """Return what the address says of something; None: nothing."""
        return (self.request.query_params.get(name) or "").strip() or None

    def required(self, name: str) -> str:
        """Return what the address has to say."""
        said = self.asked(name)
        if said is None:
            raise Refused(404, "this address is not complete: begin with the overview", "address")
        return said

    def may(self, right: Right) -> bool:
        """Whether the operator may do that."""
        return self.operator.may(right)

    def link(self, path: str, **query: object) -> str:
        """Return the address of a page."""
        return address(self.base, path, **query)

    def page(self, template: str, now: datetime, *, status: int = 200, **values: Any) -> Response:
        """Show a page, with what was just done above it."""
        response = HTMLResponse(
            render(template, {**self._common(), "now": now, **values}), status_code=status
        )
        if self.board.seal.session_of(self.request) is None:
            self.board.seal.keep_session(response, self.request, self.session)
        if self.board.seal.notice_of(self.request) is not None:
            self.board.seal.forget_notice(response, self.request)
        return response

    def done(self, notice: Notice, path: str, **query: object) -> Response:
        """Lead to a page that tells what was done: it may be loaded again, and does nothing a second time."""
        response = RedirectResponse(self.link(path, **query), 303)
        self.board.seal.keep_notice(response, self.request, notice)
        return response

    def _common(self) -> dict[str, Any]:
        theme = self.request.cookies.get(THEME, "auto")
        path = self.request.url.path.removeprefix(self.base)
        return {
            "visit": self,
            "operator": self.operator,
            "base": self.base,
            "link": self.link,
            "here": path + (f"?{self.request.url.query}" if self.request.url.query else ""),
            "path": path,
            "theme": theme if theme in THEMES else "auto",
            "token": self.board.seal.token(self.session, self.operator),
            "token_field": TOKEN_FIELD,
            "notice": self.board.seal.notice_of(self.request),
        }


@attrs.frozen
class Form:
    """What a form has brought."""

    fields: list[tuple[str, str]]

    def get(self, name: str) -> str | None:
        """Return what a field says; None: nothing."""
        return next((value.strip() for key, value in self.fields if key == name and value.strip()), None)

    def all(self, name: str) -> list[str]:
        """Return what all fields of a name say."""
        return [value for key, value in self.fields if key == name]

    def required(self, name: str) -> str:
        """Return what a field has to say."""
        said = self.get(name)
        if said is None:
            raise Refused(400, "this form is not complete: go back, and fill it in", "form")
        return said


async def form_of(request: Request) -> Form:
    """Read a form, which is small, or refuse it."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != (
        "application/x-www-form-urlencoded"
    ):
        raise Refused(415, "this is no form of the dashboard: send it from its pages", "form")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise Refused(413, "this form is larger than any of the dashboard's: choose less at once", "form")
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True)
    except (UnicodeDecodeError, ValueError):
        raise Refused(400, "this form cannot be read: send it from the dashboard's pages", "form") from None
    require_text(fields)
    return Form(fields)


def own_path(text: str | None, otherwise: str = "/") -> str:
    """Return a path of the dashboard that a form names as the one to go back to, never an address elsewhere."""
    if not text or not text.startswith("/") or text.startswith(("//", "/\\")):
        return otherwise
    parts = urlsplit(text)
    return text if not parts.scheme and not parts.netloc and text.isprintable() else otherwise
