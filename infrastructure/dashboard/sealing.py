"""What a browser keeps for us, sealed, so that it is ours when it comes back: its session, and what was just done."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.dashboard.limits import (
    KEY_CHARACTERS_MIN,
    NOTICE_SECONDS,
    SESSION_BYTES,
    THEME_SECONDS,
)
from outbox_kernel.infrastructure.dashboard.security import Refused
from outbox_kernel.infrastructure.errors import ArgumentRefused

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.operator import Operator

SESSION, NOTICE, THEME = "outbox_session", "outbox_notice", "outbox_theme"
TOKEN_FIELD = "form_token"  # noqa: S105 - the name of a field


@attrs.frozen
class Notice:
    """What an action came to, for the page that is shown next."""

    text: str
    is_good: bool = True


class Seal:
    """Signs with a key that no browser knows: one of this process's own unless one is given."""

    def __init__(self, key: str | None = None) -> None:
        if key is not None and len(key) < KEY_CHARACTERS_MIN:
            raise ArgumentRefused(
                "key", f"has fewer than {KEY_CHARACTERS_MIN} characters: give it a random one of that length"
            )
        self._key = (key or secrets.token_hex(32)).encode()

    def sign(self, *parts: str) -> str:
        """Return what only we could have made of these parts."""
        # Their lengths are part of it, or one part could lend letters to the next.
        said = json.dumps(parts).encode()
        return _as_text(hmac.digest(self._key, said, hashlib.sha256))

    def _holds(self, signature: str, *parts: str) -> bool:
        return hmac.compare_digest(signature.encode(), self.sign(*parts).encode())

    # --- the session, and the token of its forms ----------------------------------------------------

    def session_of(self, request: Request) -> str | None:
        """Return the session that a browser has, if it is of ours."""
        session, _, signature = request.cookies.get(SESSION, "").partition(".")
        return session if session and self._holds(signature, "session", session) else None

    def new_session(self) -> str:
        """Return another one."""
        return secrets.token_urlsafe(SESSION_BYTES)

    def keep_session(self, response: Response, request: Request, session: str) -> None:
        """Have the browser keep it."""
        value = f"{session}.{self.sign('session', session)}"
        _keep(response, request, SESSION, value)

    def token(self, session: str, operator: Operator) -> str:
        """Return what a form of this session and this operator has to bring along."""
        return self.sign("form", session, operator.who)

    def require_token(self, request: Request, given: str, operator: Operator) -> None:
        """Refuse a form that brings none, or that of another session."""
        session = self.session_of(request)
        if session is None or not self._holds(given, "form", session, operator.who):
            raise Refused(
                403,
                "this form is of another session, or too old: go back, load the page again, and send it once more",
                "token",
            )

    # --- what was just done -------------------------------------------------------------------------

    def keep_notice(self, response: Response, request: Request, notice: Notice) -> None:
        """Have the next page tell it."""
        said = _as_text(json.dumps(attrs.astuple(notice)).encode())
        _keep(response, request, NOTICE, f"{said}.{self.sign('notice', said)}", seconds_max=NOTICE_SECONDS)

    def notice_of(self, request: Request) -> Notice | None:
        """Return what there is to tell."""
        said, _, signature = request.cookies.get(NOTICE, "").partition(".")
        if not said or not self._holds(signature, "notice", said):
            return None
        return Notice(*json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4))))

    def forget_notice(self, response: Response, request: Request) -> None:
        """Tell it no second time."""
        response.delete_cookie(NOTICE, path=_path(request))


def keep_theme(response: Response, request: Request, theme: str) -> None:
    """Have the browser remember in which colours it is shown."""
    _keep(response, request, THEME, theme, seconds_max=THEME_SECONDS)


def _keep(
    response: Response, request: Request, name: str, value: str, *, seconds_max: int | None = None
) -> None:
    # Not `strict`: whoever follows a link from a chat would have no session, and lose the one of another tab.
    response.set_cookie(
        name,
        value,
        max_age=seconds_max,
        path=_path(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def _as_text(said: bytes) -> str:
    return base64.urlsafe_b64encode(said).decode().rstrip("=")


def _path(request: Request) -> str:
    return str(request.scope.get("root_path") or "") or "/"
