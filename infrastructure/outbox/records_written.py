"""How many events a session without capture commits: the rows that it holds as objects, once they are durable (O4).

Each savepoint has a count of its own, which its release hands on and its rollback forgets. No row is held for it: a
long import must not pile up in memory.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sqlalchemy import event

from outbox_kernel.infrastructure.outbox.record import OutboxRecord
from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import new_objects
from outbox_kernel.infrastructure.telemetry.metrics import written

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, SessionTransaction

_COUNTS = "outbox_records_written"


def count_records(session: Session) -> None:
    """Count what this session commits from now on."""
    if _COUNTS not in session.info:
        session.info[_COUNTS] = Counter()
        event.listen(session, "after_flush", _note_flushed)
        event.listen(session, "after_commit", _hand_on)
        event.listen(session, "after_transaction_end", _forget)


def _counts(session: Session) -> Counter[SessionTransaction | None]:
    """By transaction and savepoint."""
    counts: Counter[SessionTransaction | None] = session.info[_COUNTS]
    return counts


def _note_flushed(session: Session, _context: Any) -> None:
    flushed = sum(isinstance(obj, OutboxRecord) for obj in new_objects(session))
    _counts(session)[session.get_nested_transaction() or session.get_transaction()] += flushed


def _hand_on(session: Session) -> None:
    """Leave what a savepoint has written to what is around it, and count what is durable."""
    savepoint, counts = session.get_nested_transaction(), _counts(session)
    if savepoint is None:
        written.add(counts.pop(session.get_transaction(), 0))
        return
    outer = savepoint.parent
    while outer is not None and outer.parent is not None and not outer.nested:
        outer = outer.parent  # that of a flush
    counts[outer] += counts.pop(savepoint, 0)


def _forget(session: Session, transaction: SessionTransaction) -> None:
    _counts(session).pop(transaction, None)
