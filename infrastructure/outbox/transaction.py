"""What a captured session's transactions do beyond SQLAlchemy's: tell conflicts, and undo all that they must."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, SessionTransaction, SessionTransactionOrigin, attributes
from sqlalchemy.orm.exc import StaleDataError

from outbox_kernel.infrastructure.outbox.batching import FlushConnection
from outbox_kernel.infrastructure.outbox.capture_state import known_state_of
from outbox_kernel.infrastructure.outbox.conflicts import raise_conflict
from outbox_kernel.infrastructure.outbox.receipts import current_run
from outbox_kernel.kernel.aggregate import AggregateRoot

if TYPE_CHECKING:
    from sqlalchemy import Connection


class CapturedTransaction(SessionTransaction):
    """A transaction or savepoint of a captured session."""

    # A flush has a transaction of its own, and this is what its last step has written through.
    _writing: FlushConnection | None = None

    def connection(self, bindkey: Any, execution_options: Any = None, **options: Any) -> Connection:
        """Return the session's connection; each step of a flush asks for it, and writes its rows together."""
        connection = super().connection(bindkey, execution_options, **options)
        if self.origin is not SessionTransactionOrigin.SUBTRANSACTION:
            return connection
        self._send_rows()
        self._writing = FlushConnection(connection)
        return self._writing

    def _send_rows(self) -> None:
        if self._writing is not None:
            self._writing.send()

    def commit(self, _to_root: bool = False) -> None:  # noqa: FBT001, FBT002 - as SQLAlchemy declares it
        """Commit, with conflicts told as ConcurrencyError; `async with session.begin()` comes here as well."""
        run = current_run() if self._parent is None else None
        try:
            self._send_rows()
            if run is None:
                super().commit(_to_root)
            else:
                run.commit(self, super().commit)
        except (StaleDataError, DBAPIError) as error:
            raise_conflict(error)
            raise

    def rollback(self, _capture_exception: bool = False, _to_root: bool = False) -> None:  # noqa: FBT001, FBT002
        """Roll back, and with this the objects of the savepoints still open inside."""
        # SQLAlchemy closes those, and leaves their objects as they are: hand them over, savepoint by savepoint.
        for savepoint in self._savepoints_inside():
            savepoint._remove_snapshot()
        super().rollback(_capture_exception, _to_root)

    def _savepoints_inside(self) -> list[SessionTransaction]:
        """Return the open savepoints within this transaction, innermost first."""
        inside = []
        transaction: SessionTransaction | None = self.session.get_nested_transaction()
        while transaction is not None and transaction is not self:
            if transaction.nested:
                inside.append(transaction)
            transaction = transaction.parent
        # A flush has a transaction of its own, which is inside the innermost savepoint and has none.
        return inside if transaction is self else []


def after_transaction_create(_session: Session, transaction: SessionTransaction) -> None:
    """Make a transaction one of ours: a session has no hook for the class of its transactions."""
    transaction.__class__ = CapturedTransaction


def after_unbirth(session: Session, instance: object) -> None:
    """Make what a rollback has made new again stale, if it was loaded since it was stored.

    Its state, and its children above all, are then those of the rows that are gone: SQLAlchemy takes such a child
    for stored, and would not store it with its parent (C3b).
    """
    capture = known_state_of(session)
    birth = capture.birth_of(instance) if capture and isinstance(instance, AggregateRoot) else None
    state = attributes.instance_state(instance)
    # One that was deleted as well comes here too, and so does, with its key, one whose deletion is committed.
    if birth and birth.reloaded and state.key is None:
        state._expire(state.dict, set())
