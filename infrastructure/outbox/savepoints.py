"""The savepoints of a transaction that several sessions share, as the server holds them (R6).

The server keeps one stack of them. Going back to one undoes all that anybody has done since, lets go of rows that were
locked since, and forgets every younger savepoint; and so it is not done where it would harm another session. Beside
each savepoint stands who may have written between it and the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from sqlalchemy import Connection


@attrs.define(eq=False)
class Savepoint:
    """One that a session has begun; the server has it from that session's next statement on."""

    name: str
    stands: bool = False
    ended: bool = False
    writers: set[object] = attrs.Factory(set)
    """Who may have written while it was the youngest."""


class Savepoints:
    """All savepoints of one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stack: list[Savepoint] = []
        self._begun = 0
        self.failed_by: object = None
        """Whose statement failed, after which the server takes no other one."""

    def new(self) -> Savepoint:
        """Return one that the server has yet to be told of."""
        self._begun += 1
        return Savepoint(f"outbox_part_{self._begun}")

    def stand(self, savepoint: Savepoint) -> None:
        """Tell the server of it, once more if a rollback has taken it along."""
        if savepoint.stands:
            return
        self._connection.dialect.do_savepoint(self._connection, savepoint.name)
        savepoint.stands = True
        self._stack.append(savepoint)

    def note_write(self, writer: object) -> None:
        """Note that somebody may be about to write."""
        if self._stack:
            self._stack[-1].writers.add(writer)

    def end(self, savepoint: Savepoint) -> None:
        """Leave what was done since to what stands around it."""
        savepoint.ended = True
        if self.failed_by is None:
            self._release()

    def _release(self) -> None:
        # The youngest alone: with an older one the server forgets all that came after.
        ended: list[Savepoint] = []
        while self._stack and self._stack[-1].ended:
            ended.append(self._stack.pop())
        if not ended:
            return
        self._connection.dialect.do_release_savepoint(self._connection, ended[-1].name)
        for savepoint in ended:
            savepoint.stands = False
            if self._stack:
                self._stack[-1].writers |= savepoint.writers

    def go_back(self, savepoint: Savepoint, mine: object) -> bool:
        """Undo what one session has done since; return whether that could be done without harm to another."""
        if not savepoint.stands:
            return True
        place = self._stack.index(savepoint)
        writers = {writer for each in self._stack[place:] for writer in each.writers}
        if mine in writers or (self.failed_by is mine and self._has_failed()):
            if writers - {mine}:
                return False
            self._connection.dialect.do_rollback_to_savepoint(self._connection, savepoint.name)
            for younger in self._stack[place + 1 :]:
                younger.stands = False
                younger.writers.clear()
            del self._stack[place + 1 :]
            savepoint.writers.clear()
            self.failed_by = None
        self.end(savepoint)
        return True

    def _has_failed(self) -> bool:
        try:
            self.check()
        except DBAPIError:
            return True
        return False

    def check(self) -> None:
        """Raise what the server says of a transaction in which a statement has failed."""
        if self.failed_by is not None:
            _: Any = self._connection.exec_driver_sql("SELECT 1")
            self.failed_by = None  # it was refused before it reached the server
