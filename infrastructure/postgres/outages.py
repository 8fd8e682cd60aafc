"""Which errors of a database tell of an outage: it is away, out of room, or not to be written to.

That passes without a change of the code or of what was asked, so nobody who asked is at fault.
"""

from __future__ import annotations

from outbox_kernel.infrastructure.errors import DatabaseUnreachable, ServerFull
from outbox_kernel.infrastructure.postgres.asyncpg_inside import is_loss
from outbox_kernel.infrastructure.postgres.explain import causes_of, sqlstate_of

# No connection; the server ends, starts, or its operator has ended the session.
_AWAY = ("08", "57P")
# The server is out of disk, memory or connections, or takes no writes.
_SHORT = ("53100", "53200", "53300", "25006")


def is_outage(error: BaseException) -> bool:
    """Whether the database is why it was raised, and not what was asked of it."""
    state = sqlstate_of(error)
    told = state is not None and (state.startswith(_AWAY) or state in _SHORT)
    return told or any(map(_is_lost_connection, causes_of(error)))


def _is_lost_connection(error: BaseException) -> bool:
    return isinstance(error, DatabaseUnreachable | ServerFull) or is_loss(error)
