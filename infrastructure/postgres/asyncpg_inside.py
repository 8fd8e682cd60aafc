"""What is used of asyncpg's inside, which that promises nobody: all of it is named here.

Every other module calls a function of this one; a test of the house sees to it. `tests/unit/insides` tries each name
and each phrase on the version installed: where a new one fails there, this is the module to mend.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from asyncpg import Connection, InterfaceError, InternalClientError, connect_utils

KNOWN_FROM = "0.30"
KNOWN_UP_TO = "0.32"
"""The versions that this holds for, the last one whatever its third number."""

USED = {
    "asyncpg.connect_utils": "it documents no module but its package",
    "connect_utils.TLSUpgradeProto": "it makes this protocol itself, and takes none that was made for it",
    "TLSUpgradeProto.on_data": "the answer that nobody awaits any more is nowhere else",
    "Connection._config": "how a connection was configured it tells nobody",
}
"""What is read or replaced, by its owner's name, and why there is no public way."""

_NO_TLS = "rejected SSL upgrade"
_CLOSED = "connection is closed"
_FAREWELL = "cannot switch to state"

SAID = {
    _NO_TLS: "a server without TLS is a ConnectionError as a refused connection is",
    _CLOSED: "an InterfaceError is any wrong use of a connection, and one that was lost too",
    _FAREWELL: "an InternalClientError is whatever it did not foresee",
}
"""What it says in a message and in no type, and what else would be taken for the same."""


def hush_upgrades() -> None:
    """Count the answer whether the server has TLS as asked for once its connection is lost.

    As a program ends right after a commit, so does the connecting that was to tell of it. Nobody awaits the answer
    then, and asyncio would tell of the error in its place, of a program that ended well. Who awaits it gets it all the
    same.
    """
    protocol: Any = getattr(connect_utils, "TLSUpgradeProto", None)
    if protocol is None:
        return  # without it there is nothing to hush
    lose = protocol.connection_lost

    def connection_lost(self: Any, error: Exception | None) -> None:
        lose(self, error)
        with suppress(asyncio.CancelledError):
            self.on_data.exception()

    protocol.connection_lost = connection_lost


def prepares_nothing(connection: Connection) -> bool:
    """Whether it keeps no prepared statement, as behind a pooler in transaction mode: a setting is lost there, too."""
    known: Any = connection
    return bool(known._config.statement_cache_size == 0)  # noqa: SLF001 - what this module is for


def is_without_tls(error: BaseException) -> bool:
    """Whether the server has no TLS, where it was demanded."""
    return isinstance(error, ConnectionError) and _NO_TLS in str(error)


def is_loss(error: BaseException) -> bool:
    """Whether a connection was lost, and only its next use has found out."""
    if isinstance(error, InterfaceError):
        return _CLOSED in str(error)
    # It was reading the server's farewell when it was asked for something.
    return isinstance(error, InternalClientError) and _FAREWELL in str(error)
