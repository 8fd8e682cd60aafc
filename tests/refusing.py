"""How a body of JSON is refused for what it holds."""

from __future__ import annotations

from outbox_kernel.infrastructure.http.json_size import check_size
from outbox_kernel.infrastructure.http.problems import Refused


def refusal(body: bytes, values_max: int) -> str | None:
    """Return the kind of its problem, or None."""
    try:
        check_size(body, values_max)
    except Refused as refused:
        return refused.problem.kind
    return None
