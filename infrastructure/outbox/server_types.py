"""The server's own types of transactions, which SQLAlchemy does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.types import UserDefinedType

if TYPE_CHECKING:
    from collections.abc import Callable


class TransactionId(UserDefinedType[int]):
    """A transaction's number, which never comes again."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """Name it in DDL."""
        return "xid8"

    def result_processor(self, *_: object) -> Callable[[Any], int | None]:
        """Read it as a number: asyncpg gives one, psycopg its digits."""
        return lambda value: None if value is None else int(value)


class PgSnapshot(UserDefinedType[str]):
    """Which transactions are visible."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """Name it in DDL."""
        return "pg_snapshot"


# Else an application's `--autogenerate`, which reads every table that there is, would warn of ours.
ischema_names["xid8"] = TransactionId
ischema_names["pg_snapshot"] = PgSnapshot
