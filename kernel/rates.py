"""Rates as an option writes them: so many in so long (R16)."""

from __future__ import annotations

import re

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_RATE = re.compile(r"([1-9][0-9]{0,8})/(s|min|h)")


def interval_seconds(rate: object) -> float | None:
    """Return how long after the other each may begin, so that there are no more; None: it is no rate."""
    found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    return None if found is None else _SECONDS[found[2]] / int(found[1])
