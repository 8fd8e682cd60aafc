"""Executing a statement of ours on a connection of the application's, at the least cost (C1, R6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError, StatementError

from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import execute_bare, is_watched
from outbox_kernel.infrastructure.outbox.statements import as_psycopg_writes

if TYPE_CHECKING:
    from sqlalchemy import Connection


def execute(connection: Connection, statement: str, values: tuple[Any, ...]) -> Any:
    """Execute, and return the first value of the first row, if there is one.

    It does without the context that SQLAlchemy makes for each statement, which is a fiftieth of a commit, unless
    somebody would see it.
    """
    parameters: Any = values
    if connection.dialect.driver == "psycopg":
        statement = as_psycopg_writes(statement)
        parameters = {f"p{number}": value for number, value in enumerate(values, start=1)}
    if is_watched(connection) or not connection.in_transaction():
        result = connection.exec_driver_sql(statement, parameters)
        return result.scalar() if result.returns_rows else None
    cursor = connection.connection.cursor()
    try:
        execute_bare(connection, cursor, statement, parameters)
    except StatementError as error:
        # Without a context SQLAlchemy wraps whatever there is, and shows the statement with its parameters.
        if isinstance(error.orig, Exception) and not isinstance(error, DBAPIError):
            raise error.orig from None
        raise
    row = cursor.fetchone() if cursor.description else None
    cursor.close()
    return row[0] if row else None
