"""Outages: what is nobody's fault in how a handler's run ended (R7).

What a handler names with `Unavailable`, and what a database of PostgreSQL tells: that it is away, takes no more
connections or takes no writes, or that a transaction has lost a race with another.
"""

from __future__ import annotations

from outbox_kernel.infrastructure.postgres.explain import sqlstate_of
from outbox_kernel.infrastructure.postgres.outages import is_outage
from outbox_kernel.kernel.errors import Reject, RetryAfter, SecondCommit, Unavailable

_LOST_RACES = ("40001", "40P01")


def outage_of(error: BaseException) -> str | None:
    """Return what is away, in words, if that is why a run failed."""
    if isinstance(error, Unavailable):
        return str(error)
    if isinstance(error, Reject | RetryAfter | SecondCommit):
        return None  # whatever made it say so
    if is_outage(error) or sqlstate_of(error) in _LOST_RACES:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return None


def is_lost_race(error: BaseException) -> bool:
    """Whether another transaction was first; to run again at once may well do."""
    return not isinstance(error, Unavailable) and sqlstate_of(error) in _LOST_RACES
