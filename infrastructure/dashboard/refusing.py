"""Whatever goes wrong, as a page: what happened and what to do, and nothing of what is inside."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from outbox_kernel.infrastructure.dashboard import words
from outbox_kernel.infrastructure.dashboard.audit import note_refusal
from outbox_kernel.infrastructure.dashboard.rendering import render
from outbox_kernel.infrastructure.dashboard.sealing import THEME
from outbox_kernel.infrastructure.dashboard.security import Refused
from outbox_kernel.infrastructure.errors import ArgumentRefused, DatabaseRefusal
from outbox_kernel.infrastructure.operations.selection import NothingFound
from outbox_kernel.kernel.errors import KernelError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_log = logging.getLogger("outbox.dashboard")

# Where a request keeps who has sent it.
OPERATOR = "outbox.operator"


def refusal_of(request: Request, error: Exception) -> Response | None:
    """Return the page that says why not; None: the error is nobody's but ours, and its server's to tell."""
    if isinstance(error, Refused):
        note_refusal(request, error, request.scope.get(OPERATOR))
        return _page(request, error.status, str(error))
    if isinstance(error, HTTPException):
        sentence = error.detail if error.status_code != HTTPStatus.NOT_FOUND else "there is no such page"
        return _page(request, error.status_code, sentence, dict(error.headers or {}))
    if isinstance(error, NothingFound):
        return _page(request, HTTPStatus.NOT_FOUND, words.in_a_browser(str(error)))
    if isinstance(error, DatabaseRefusal):
        _log.warning("a page cannot be shown: %s", error, extra={"action": "dashboard.unavailable"})
        return _page(request, HTTPStatus.SERVICE_UNAVAILABLE, str(error), {"retry-after": "5"})
    if isinstance(error, KernelError) and not isinstance(error, ArgumentRefused):
        return _page(request, HTTPStatus.CONFLICT, words.in_a_browser(str(error)))
    return None


def _page(request: Request, status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    happened, _, remedy = sentence.rpartition(": ")
    return HTMLResponse(
        render(
            "refused.html",
            {
                "title": HTTPStatus(status).phrase,
                "status": int(status),
                "happened": words.sentence(happened or remedy),
                "remedy": words.sentence(remedy) if happened else None,
                "base": request.scope["root_path"],
                "theme": request.cookies.get(THEME, "auto"),
            },
        ),
        status_code=status,
        headers=headers,
    )
