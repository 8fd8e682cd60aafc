"""An event on its way to the outbox: alone, or together with the row of the aggregate that it creates (C1).

Most new aggregates are stored with one event. That event takes the row's INSERT along as a WITH of its own: one round
trip for both, where two are a tenth of a commit dearer. PostgreSQL executes the main statement first, and then what
nobody refers to, so that the event is written before the row, as everywhere: whose id is taken is told the same.

It relies on what SQLAlchemy does inside, from 2.0.40 to 2.1: a statement's context has its text and parameters until
the connection's `_exec_single_context` sends them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import attrs
from sqlalchemy.exc import DBAPIError

from outbox_kernel.infrastructure.outbox.conflicts import note_keys, sqlstate, table_name
from outbox_kernel.infrastructure.outbox.executing import execute
from outbox_kernel.infrastructure.outbox.limits import COMBINED_STATEMENTS_MAX
from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import is_watched
from outbox_kernel.kernel.envelope import Envelope
from outbox_kernel.kernel.errors import ConcurrencyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

_PARAMETER = re.compile(r"\$(\d+)")
_ID, _KEY = Envelope._fields.index("aggregate_id"), Envelope._fields.index("aggregate_key")
_NOT_SUPPORTED = "0A000"

# INSERTs that the server cannot execute in a WITH, since their table has rules.
_alone: set[str] = set()


@attrs.define(eq=False)
class Outgoing:
    """A statement that writes events, with its values."""

    connection: Connection
    statement: str
    values: tuple[Any, ...]
    explain: Callable[[DBAPIError, Connection], None]

    def may_wait(self) -> bool:
        """Whether a row could be taken along, and nobody would see a difference."""
        return self.connection.dialect.driver == "asyncpg" and not is_watched(self.connection)

    def takes(self, context: Any) -> bool:
        """Whether a statement is the INSERT of one row, of which nothing is asked back, on the same connection."""
        return (
            context.isinsert
            # As the flush's own statements have it, and no listener's: nobody reads how many rows it has inserted.
            and "compiled_cache" in context.execution_options
            and not context.executemany
            and not context.compiled.effective_returning
            and context.root_connection.__dict__ is self.connection.__dict__
            and context.statement not in _alone
        )

    def write(self) -> None:
        """Write the events alone."""
        try:
            execute(self.connection, self.statement, self.values)
        except DBAPIError as error:
            self._explain(error)
            raise

    def write_with(self, context: Any, send: Callable[[], Any]) -> Any:
        """Write the event, and the row after it."""
        row, parameters = context.statement, context.parameters[0]
        context.statement = _combined(self.statement, row, len(parameters))
        context.parameters = [(*parameters, *self.values)]
        try:
            return send()
        except DBAPIError as error:
            # What is shown is the row's own, as ever; the payload may hold secrets (K11).
            error.statement, error.params = row, parameters
            if sqlstate(error) == _NOT_SUPPORTED:
                _alone.add(row)
                raise ConcurrencyError(
                    "a table has rules, with which its rows cannot be written together with an event; from now on "
                    "this process writes them one after the other, so load again and retry"
                ) from error
            if table_name(error) in (None, "outbox_events"):
                self._explain(error)
            raise

    def _explain(self, error: DBAPIError) -> None:
        ids, keys = (self.values[index] for index in (_ID, _KEY))
        note_keys(error, dict(zip(ids, keys, strict=True)) if isinstance(ids, list) else {ids: keys})
        self.explain(error, self.connection)


@lru_cache(COMBINED_STATEMENTS_MAX)
def _combined(events: str, row: str, taken: int) -> str:
    shifted = _PARAMETER.sub(lambda found: f"${int(found[1]) + taken}", events)
    return f"WITH its_row AS ({row}) {shifted}"
