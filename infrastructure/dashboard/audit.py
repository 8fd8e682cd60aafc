"""What was done and what was refused, for the log: by whom, to what, and what it came to (O3)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request

    from outbox_kernel.infrastructure.dashboard.operator import Operator
    from outbox_kernel.infrastructure.dashboard.security import Refused

_log = logging.getLogger("outbox.dashboard")


def note_action(action: str, request: Request, operator: Operator, **about: object) -> None:
    """Tell that an operator has changed something."""
    _log.info(
        "%s: %s",
        *(operator.who, action),
        extra={
            "action": "dashboard.acted",
            "did": action,
            "who": operator.who,
            "client": _client(request),
            **{name: value for name, value in about.items() if value is not None},
        },
    )


def note_refusal(request: Request, refused: Refused, operator: Operator | None) -> None:
    """Tell that somebody was refused, and why; not what was asked for in detail, which may be long and odd."""
    _log.warning(
        "refused: %s",
        refused,
        extra={
            "action": "dashboard.refused",
            "reason": refused.reason,
            "status": refused.status,
            "method": request.method,
            "path": request.url.path,
            "client": _client(request),
            **({"who": operator.who} if operator is not None else {}),
        },
    )


def _client(request: Request) -> str | None:
    return None if request.client is None else request.client.host
