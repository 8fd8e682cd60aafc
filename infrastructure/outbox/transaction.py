"""What a captured session's transactions do beyond SQLAlchemy's: tell conflicts, and undo all that they must."""

from __future__ import annotations

from sqlalchemy.orm import Session, SessionTransaction

from infrastructure.outbox.conflicts import conflicts_translated


class CapturedTransaction(SessionTransaction):
    """A transaction or savepoint of a captured session."""

    def commit(self, _to_root: bool = False) -> None:  # noqa: FBT001, FBT002 - as SQLAlchemy declares it
        """Commit, with conflicts told as ConcurrencyError; `async with session.begin()` comes here as well."""
        with conflicts_translated():
            super().commit(_to_root)

    def rollback(self, _capture_exception: bool = False, _to_root: bool = False) -> None:  # noqa: FBT001, FBT002
        """Roll back, and with this the objects of the savepoints still open inside."""
        # SQLAlchemy closes those, and leaves their objects as they are: hand them over, savepoint by savepoint.
        inner = self.session.get_nested_transaction()
        while inner is not None and inner is not self:
            inner._remove_snapshot()
            inner = inner.parent if inner.parent is not self else None
        super().rollback(_capture_exception, _to_root)


def after_transaction_create(_session: Session, transaction: SessionTransaction) -> None:
    """Make a transaction one of ours: a session has no hook for the class of its transactions."""
    transaction.__class__ = CapturedTransaction
