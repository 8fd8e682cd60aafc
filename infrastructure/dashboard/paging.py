"""Where the next page begins, as an address says it: the keys of the last row, never how many came before."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.dashboard.security import Refused

if TYPE_CHECKING:
    from starlette.requests import Request

_NUMBERS = re.compile(r"\d{1,18}(\.\d{1,19})*")
_LARGEST = 2**63 - 1
FIELD = "from"


def encoded(*keys: int) -> str:
    """Write the keys of a row."""
    return ".".join(map(str, keys))


def decoded(text: str, size: int) -> tuple[int, ...] | None:
    """Read so many keys; None: that was never written here."""
    if not text.isascii() or not _NUMBERS.fullmatch(text):
        return None
    keys = tuple(map(int, text.split(".")))
    return keys if len(keys) == size and max(keys) <= _LARGEST else None


def place_of(request: Request, size: int = 1) -> tuple[int, ...] | None:
    """Return where a request wants its page to begin; None: at the beginning."""
    given = request.query_params.get(FIELD)
    if not given:
        return None
    keys = decoded(given, size)
    if keys is None:
        raise Refused(404, "there is no such page: begin with the first one", "page")
    return keys
