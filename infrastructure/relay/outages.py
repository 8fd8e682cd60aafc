"""Outages: what is nobody's fault in how a handler's run ended (R7).

What a handler names with `Unavailable`, and what a database of PostgreSQL tells: that it is away, takes no more
connections or takes no writes, or that a transaction has lost a race with another.
"""

from __future__ import annotations

from outbox_kernel.infrastructure.errors import DatabaseUnreachable, ServerFull
from outbox_kernel.infrastructure.postgres.asyncpg_inside import is_loss
from outbox_kernel.infrastructure.postgres.explain import causes_of, sqlstate_of
from outbox_kernel.kernel.errors import Reject, RetryAfter, SecondCommit, Unavailable

# No connection; the server ends, starts, or its operator has ended the session.
_AWAY = ("08", "57P")
# The server is out of disk, memory or connections, or takes no writes.
_SHORT = ("53100", "53200", "53300", "25006")
_LOST_RACES = ("40001", "40P01")


def outage_of(error: BaseException) -> str | None:
    """Return what is away, in words, if that is why a run failed."""
    if isinstance(error, Unavailable):
        return str(error)
    if isinstance(error, Reject | RetryAfter | SecondCommit):
        return None  # whatever made it say so
    state = sqlstate_of(error)
    told = state is not None and (state.startswith(_AWAY) or state in (*_SHORT, *_LOST_RACES))
    if told or any(map(_is_lost_connection, causes_of(error))):
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return None


def is_lost_race(error: BaseException) -> bool:
    """Whether another transaction was first; to run again at once may well do."""
    return not isinstance(error, Unavailable) and sqlstate_of(error) in _LOST_RACES


def _is_lost_connection(error: BaseException) -> bool:
    return isinstance(error, DatabaseUnreachable | ServerFull) or is_loss(error)
