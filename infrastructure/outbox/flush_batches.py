"""The rows that a flush changes or deletes, sent together and still counted (C4).

SQLAlchemy sends the rows of a class with a lock (`version_id_col`) one statement each, since not every driver counts
what an `executemany` matches. Here the first of them goes as ever. Those that follow it and differ in their values
alone are kept, and go as one `executemany` as soon as SQLAlchemy compares how many rows it has matched with how many
it should have: their order, and so the order of locks, is what it was.

It relies on what SQLAlchemy does inside, from 2.0.40 to 2.1: a flush asks its transaction for the `connection`,
executes there with a `compiled_cache`, reads of each result what `_Kept` has, and adds up each `rowcount`. Should it
ever not compare, what is kept goes before whatever comes next, at the latest at the end of the flush.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
from sqlalchemy import Connection, Delete, Update
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_cursor
from sqlalchemy.orm.exc import StaleDataError

from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import stand_before_driver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import CursorResult

    from outbox_kernel.infrastructure.outbox.capture_state import CaptureState


class FlushConnection(Connection):
    """A session's connection, as one step of a flush writes through it."""

    # All else it shares with the connection that it stands for.
    __slots__ = ("_batch", "_capture", "_counter")

    def __init__(self, connection: Connection, capture: CaptureState | None = None) -> None:
        self.__dict__ = connection.__dict__
        self._capture = capture
        self._batch: _Batch | None = None
        self._counter: _Counter | None = None

    def execute(self, statement: Any, parameters: Any = None, *, execution_options: Any = None) -> Any:
        """Execute, or keep what can go with what follows."""
        if self._batch is not None:
            if self._batch.takes(statement, parameters):
                return self._batch.keep(parameters)
            self.send()
        result = super().execute(statement, parameters, execution_options=execution_options)
        # Nobody but SQLAlchemy itself brings a cache: a listener wants the result of what it executes.
        if execution_options and "compiled_cache" in execution_options and isinstance(parameters, dict):
            self._batch = _Batch(self, statement, execution_options, parameters, result)
        return result

    def send(self) -> None:
        """Execute what is kept, and refuse the flush if it has not matched every row."""
        batch, self._batch = self._batch, None
        if batch is not None:
            batch.send()

    def execute_counted(self, statement: Any, parameters: Sequence[Any], options: Any) -> int:
        """Execute a statement once with each set of parameters, and return how many rows it has matched."""
        self._counter = counter = _Counter()
        try:
            result = super().execute(statement, parameters, execution_options=options)
        finally:
            self._counter = None
        return result.rowcount if counter.matched is None else counter.matched

    def _exec_single_context(self, dialect: Any, context: Any, statement: Any, parameters: Any) -> Any:
        if self._counter is not None and isinstance(context.cursor, AsyncAdapt_asyncpg_cursor):
            self._counter.stand_before(context.cursor)
        send = partial(super()._exec_single_context, dialect, context, statement, parameters)
        capture = self._capture
        if capture is None or capture.outgoing is None or not capture.outgoing.takes(context):
            self._let_go()
            return send()
        outgoing, capture.outgoing = capture.outgoing, None
        return outgoing.write_with(context, send)

    def _exec_insertmany_context(self, dialect: Any, context: Any) -> Any:
        self._let_go()
        return super()._exec_insertmany_context(dialect, context)

    def _let_go(self) -> None:
        """Write the event that waited for a row of another kind."""
        if self._capture is not None:
            self._capture.write_outgoing()


@attrs.define(eq=False)
class _Batch:
    """Statements that differ in their values alone; the sum of their row counts, to whom compares it."""

    connection: FlushConnection
    statement: Any
    options: Any
    parameters: dict[str, Any]
    first: CursorResult[Any]
    kept: list[dict[str, Any]] = attrs.Factory(list)
    matched: int = 0

    def takes(self, statement: Any, parameters: Any) -> bool:
        """Whether a statement differs from the first in its values alone, and nobody needs more than its count."""
        return (
            statement is self.statement
            and isinstance(parameters, dict)
            and parameters.keys() == self.parameters.keys()
            and (bool(self.kept) or self._is_plain())
        )

    def _is_plain(self) -> bool:
        if not isinstance(self.statement, Update | Delete):
            return False
        compiled: Any = self.first.context.compiled
        # A value made here, or asked of the server, belongs to the one row of its statement.
        return not (compiled.prefetch or compiled.effective_returning) and self._is_counted()

    def _is_counted(self) -> bool:
        dialect = self.connection.dialect
        return dialect.supports_sane_multi_rowcount or dialect.driver == "asyncpg"

    def keep(self, parameters: dict[str, Any]) -> _Kept:
        """Keep a statement until somebody compares."""
        self.kept.append(parameters)
        return _Kept(self, self.first.context.compiled, [parameters])

    def send(self) -> None:
        """Execute all that is kept."""
        if not self.kept:
            return
        matched = self.connection.execute_counted(self.statement, self.kept, self.options)
        self.matched = self.first.rowcount + matched
        # Of several deletions SQLAlchemy does not compare the count, where the driver is known to tell none.
        if self.matched != len(self.kept) + 1:
            raise StaleDataError(
                f"{self.statement.__visit_name__.upper()} statement on table '{self.statement.table.description}' "
                f"expected to match {len(self.kept) + 1} row(s); {self.matched} were matched."
            )

    def __add__(self, _rows: object) -> _Batch:
        return self

    __radd__ = __add__

    def __ne__(self, rows: object) -> bool:
        self.connection.send()
        return self.matched != rows

    def __gt__(self, rows: int) -> bool:
        self.connection.send()
        return self.matched > rows


@attrs.define(eq=False)
class _Kept:
    """What a flush reads of the result of a statement, and of that result's context."""

    rowcount: _Batch
    compiled: Any
    compiled_parameters: list[dict[str, Any]]
    returned_defaults: None = None

    @property
    def context(self) -> _Kept:
        return self


class _Counter:
    """Stands between a cursor and asyncpg, whose `executemany` tells no count and whose `fetchmany` tells rows."""

    _driver: Any
    matched: int | None = None

    def stand_before(self, cursor: Any) -> None:
        self._driver = stand_before_driver(cursor, self)

    async def executemany(self, statement: str, parameters: Sequence[Any]) -> None:
        rows = await self._driver.fetchmany(f"{statement}\nRETURNING 1", parameters)
        self.matched = len(rows)
