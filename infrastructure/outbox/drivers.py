"""Which sessions capture can write through: those of two drivers for PostgreSQL, in transactions (C9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outbox_kernel.infrastructure.errors import CannotCapture
from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import isolation_level_on_connect

if TYPE_CHECKING:
    from sqlalchemy import Connection, Dialect

_DRIVERS = ("asyncpg", "psycopg")
_AUTOCOMMIT = "AUTOCOMMIT"


def check_bind(bind: Any) -> None:
    """Refuse what capture cannot write through as far as it shows before there is a connection."""
    bind = getattr(bind, "sync_engine", None) or getattr(bind, "sync_connection", None) or bind
    check_driver(bind.dialect)
    level = bind.get_execution_options().get("isolation_level")
    if (level or isolation_level_on_connect(bind.dialect)) == _AUTOCOMMIT:
        raise _refused_autocommit()


def check_connection(connection: Connection) -> None:
    """Refuse a connection that capture cannot write through."""
    check_driver(connection.dialect)
    # Of the driver's connection, which any of four ways may have set so.
    if connection.connection.autocommit:
        raise _refused_autocommit()


def check_driver(dialect: Dialect) -> None:
    """Refuse a driver that statements of ours are not written for."""
    if dialect.driver not in _DRIVERS:
        raise CannotCapture(
            f"capture writes through asyncpg or psycopg 3, and this session uses {dialect.driver}; create its engine "
            "from a postgresql+asyncpg:// or postgresql+psycopg:// URL"
        )


def _refused_autocommit() -> CannotCapture:
    return CannotCapture(
        "this session's engine or connection is in AUTOCOMMIT, where an event and its state cannot commit as one; "
        "give sessions with capture one with another isolation level"
    )
