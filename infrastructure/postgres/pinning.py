"""What a connection of our own works with, whatever its role, its database or a schema on the way says (R12).

Tables are named with their schema, which is where the search path found them; then nothing is found by it but what the
server has itself. Somebody's own `json_build_object`, or operator, in a schema that others may create in would run with
the rights of a relay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.postgres.asyncpg_inside import prepares_nothing
from outbox_kernel.infrastructure.postgres.limits import IDLE_IN_TRANSACTION_SECONDS, PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import asyncpg

# Each statement has one right plan, whatever the server believes of a table that was empty a moment ago, or is not
# cleaned up. To compile it would take longer than to run it, and so would helpers.
BY_INDEX = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}
# A query that row security would filter is an error then, and hides no event.
_OWN = {
    "search_path": "pg_catalog, pg_temp",
    "row_security": "off",
    "standard_conforming_strings": "on",
    "idle_session_timeout": "0",
    **BY_INDEX,
}
_OF_SESSION = {"default_transaction_isolation": "read committed", "default_transaction_read_only": "off"}
_OF_TRANSACTION = {"transaction_isolation": "read committed", "transaction_read_only": "off"}
# Before these versions there was none.
_SINCE = {"transaction_timeout": 17}

# With each name of the server's in full, since nothing is pinned yet.
_LOOK = """
SELECT pg_catalog.pg_backend_pid() AS process_id, (
  SELECT namespace.nspname FROM pg_catalog.pg_class AS class, pg_catalog.pg_namespace AS namespace
  WHERE class.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('outbox_events')::pg_catalog.oid
    AND namespace.oid OPERATOR(pg_catalog.=) class.relnamespace)::pg_catalog.text AS home
"""


@attrs.frozen
class Pinned:
    """How a connection works."""

    home: str | None
    """The schema in which the outbox was found by the search path; None: it was not."""
    sets: str = ""
    """What each transaction is told first, behind a pooler, where nothing is kept from one to the next."""

    @property
    def begin(self) -> str:
        """What begins a transaction."""
        return f"BEGIN; {self.sets}" if self.sets else "BEGIN"

    @property
    def in_transactions(self) -> bool:
        """Whether a statement by itself is to have a transaction, too."""
        return bool(self.sets)


async def pin(
    connection: asyncpg.Connection,
    seconds: float,
    *,
    statement_seconds: float | None = None,
    lock_seconds: float | None = None,
    idle_seconds: float = IDLE_IN_TRANSACTION_SECONDS,
    within: bool = False,
) -> Pinned:
    """Pin a new connection whose callers wait for an answer for so long; or `within` the transaction that has begun."""
    [found] = await connection.fetch(_LOOK, timeout=seconds)
    settings = {
        **_OWN,
        "statement_timeout": _milliseconds(statement_seconds or seconds + PATIENCE_SECONDS),
        "lock_timeout": _milliseconds(lock_seconds or seconds + PATIENCE_SECONDS),
        "idle_in_transaction_session_timeout": _milliseconds(idle_seconds),
        "transaction_timeout": "0",
    }
    version = connection.get_server_version().major
    settings = {name: value for name, value in settings.items() if version >= _SINCE.get(name, 0)}
    if within:
        await connection.execute(_sets("SET LOCAL", settings), timeout=seconds)
        return Pinned(found["home"])
    if prepares_nothing(connection) or found["process_id"] != connection.get_server_pid():
        # What is set for the session would be the next client's, and not ours.
        return Pinned(found["home"], _sets("SET LOCAL", _OF_TRANSACTION | settings))
    await connection.execute(_sets("SET", _OF_SESSION | settings), timeout=seconds)
    return Pinned(found["home"])


def _sets(command: str, settings: Mapping[str, str]) -> str:
    return "; ".join(
        f"{command} {name} = {value if name == 'search_path' else repr(value)}"
        for name, value in settings.items()
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1_000:.0f}ms"
