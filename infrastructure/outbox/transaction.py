"""What a captured session's transactions do beyond SQLAlchemy's: tell conflicts, and undo all that they must.

SQLAlchemy takes from a savepoint's rollback what was changed there, object by object. An object that is loaded after
the change, for one because nobody held the first, shows the change too, and is not among those. So each transaction and
savepoint knows since when it has written, and what was loaded since then is undone with it (C3, C4).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import TextClause
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, SessionTransaction, SessionTransactionOrigin, attributes
from sqlalchemy.orm.base import NO_VALUE
from sqlalchemy.orm.exc import StaleDataError

from outbox_kernel.infrastructure.outbox.capture_state import known_state_of
from outbox_kernel.infrastructure.outbox.conflicts import raise_conflict
from outbox_kernel.infrastructure.outbox.flush_batches import FlushConnection
from outbox_kernel.infrastructure.outbox.reads import may_write
from outbox_kernel.infrastructure.outbox.receipts import current_run
from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import (
    begun_transaction,
    expire_alone,
    forget_deletion,
    hand_objects_over,
    innermost_transaction,
    is_prepared,
    next_load,
    restore_objects,
    states_within,
    take_for_changed,
)
from outbox_kernel.kernel.aggregate import AggregateRoot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection
    from sqlalchemy.orm import InstanceState


# What a text may begin with that writes no row, as long as it is one statement. A function may write nevertheless.
_READS = re.compile(r"\s*(select|set|show|lock|table|values)\b[^;]*;?\s*\Z", re.IGNORECASE)


class CapturedTransaction(SessionTransaction):
    """A transaction or savepoint of a captured session."""

    # SQLAlchemy counts the loads of a process, and leaves on each object the number of the last one.
    wrote_before_load: int | None = None
    # How many rows of the outbox it holds; a savepoint's are from its release on the outer one's.
    events_written = 0
    # It has sent a statement in which more may be hidden than its kind says, such as text.
    may_have_written = False
    # What was filled in a part since it wrote, such as a collection, and may show what is undone with it.
    filled: dict[InstanceState[Any], None] | None = None
    # Of the outermost alone: somebody was given its connection, and may write through it whenever he likes.
    lent = False
    # A flush has a transaction of its own, and this is what its last step has written through.
    _writing: FlushConnection | None = None

    def connection(self, bindkey: Any, execution_options: Any = None, **options: Any) -> Connection:
        """Return the session's connection; each step of a flush asks for it, and writes its rows together."""
        connection = super().connection(bindkey, execution_options, **options)
        if self.origin is not SessionTransactionOrigin.SUBTRANSACTION:
            return connection
        self._send_rows()
        self._writing = self._flush_connection(connection)
        return self._writing

    def _flush_connection(self, connection: Connection) -> FlushConnection:
        return FlushConnection(connection, known_state_of(self.session))

    def _send_rows(self) -> None:
        if self._writing is not None:
            self._writing.send()

    def commit(self, _to_root: bool = False) -> None:  # noqa: FBT001, FBT002 - as SQLAlchemy declares it
        """Commit, with conflicts told as ConcurrencyError; `async with session.begin()` comes here as well."""
        run = current_run() if self.parent is None else None
        try:
            self._send_rows()
            if run is None:
                super().commit(_to_root)
            else:
                run.commit(self, super().commit, may_have_effect)
        except (StaleDataError, DBAPIError) as error:
            if self.parent is None and is_prepared(self):
                # COMMIT itself has failed, so nothing is left of what the objects show. SQLAlchemy waits with this
                # for the rollback that its user still has to ask for.
                restore_objects(self)
            raise_conflict(error)
            raise

    def rollback(self, _capture_exception: bool = False, _to_root: bool = False) -> None:  # noqa: FBT001, FBT002
        """Roll back, and with this the objects of the savepoints still open inside."""
        root = self.session.get_transaction() if _to_root else None
        if root is not None and root is not self:
            # At once, where SQLAlchemy would roll back savepoint by savepoint: that takes away the state of what was
            # new before and is to be new again.
            root.rollback()
            return
        # SQLAlchemy closes those, and leaves their objects as they are: hand them over, savepoint by savepoint.
        for savepoint in self._savepoints_inside():
            if savepoint.is_active:
                hand_objects_over(savepoint)
        super().rollback(_capture_exception, _to_root)

    def loaded_since_it_wrote(self, state: InstanceState[Any]) -> bool:
        """Whether the object may show what this transaction wrote."""
        wrote = self.wrote_before_load
        if wrote is None:
            return False
        return state in (self.filled or ()) or (state.runid is not None and state.runid > wrote)

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

    def _restore_snapshot(self, dirty_only: bool = False) -> None:  # noqa: FBT001, FBT002
        if dirty_only and self.wrote_before_load is not None:
            # What was deleted as well, since it is back after that.
            take_for_changed(self, filter(self.loaded_since_it_wrote, states_within(self)))
        super()._restore_snapshot(dirty_only)

    def _remove_snapshot(self) -> None:
        super()._remove_snapshot()
        if self.nested:
            # What a savepoint wrote is from its release on the outer one's, which may commit at once.
            self._hand_on(_with_savepoint(cast("SessionTransaction", self.parent)))

    def _hand_on(self, outer: CapturedTransaction) -> None:
        outer.events_written += self.events_written
        outer.may_have_written |= self.may_have_written
        if self.wrote_before_load is not None:
            _note_write(outer, self.wrote_before_load)
            outer.filled = (outer.filled or {}) | (self.filled or {})


def note_statement(session: Session, statement: object) -> None:
    """Note that the open transaction is about to send what is no query, or hides what it is."""
    if getattr(statement, "is_select", False):
        if current_run() is not None and may_write(statement):
            _innermost(session).may_have_written = True
        return
    if not (isinstance(statement, TextClause) and _READS.match(statement.text)):
        note_write(session)
    _innermost(session).may_have_written = True


def note_connection(session: Session) -> None:
    """Note that somebody has asked for the connection, and may write on it for as long as the transaction lasts."""
    begun_transaction(session)
    for transaction in _open(session):
        if transaction.parent is None:
            transaction.may_have_written = True


def may_have_effect(session: Session) -> bool:
    """Whether the open transaction may have written anything that is not rolled back."""
    if has_written(session) or events_written(session) or session.dispatch.after_begin:
        return True  # a listener is given the connection, too
    return any(each.may_have_written for each in _open(session))


def note_lent_connection(session: Session) -> None:
    """Note that somebody gets the connection itself, and that nobody hears of what he writes through it."""
    note_write(session)
    cast("CapturedTransaction", session.get_transaction()).lent = True


def after_savepoint(_session: Session, transaction: SessionTransaction) -> None:
    """Take a savepoint for one that has written from its beginning, if somebody has the connection."""
    if transaction.nested and any(each.lent for each in _from(transaction.parent)):
        cast("CapturedTransaction", transaction).wrote_before_load = next_load()


def note_write(session: Session) -> None:
    """Note that the open transaction, or its innermost savepoint, has written rows or is about to."""
    _note_write(begun_transaction(session), None)


def _innermost(session: Session) -> CapturedTransaction:
    return _with_savepoint(begun_transaction(session))


def _with_savepoint(transaction: SessionTransaction) -> CapturedTransaction:
    while transaction.parent is not None and not transaction.nested:
        transaction = transaction.parent  # that of a flush
    return cast("CapturedTransaction", transaction)


def _note_write(transaction: SessionTransaction, load: int | None) -> None:
    captured = _with_savepoint(transaction)
    if captured.wrote_before_load is None:
        captured.wrote_before_load = next_load() if load is None else load


def note_read(session: Session, state: InstanceState[Any]) -> None:
    """Note that an object may show what is written, where SQLAlchemy leaves on it no number of a load."""
    for transaction in _open(session):
        if transaction.wrote_before_load is not None:
            transaction.filled = transaction.filled or {}
            transaction.filled[state] = None


def has_written(session: Session) -> bool:
    """Whether anything is written that a rollback would undo."""
    return any(each.wrote_before_load is not None for each in _open(session))


def shows_what_is_not_committed(session: Session, state: InstanceState[Any]) -> bool:
    """Whether an object was loaded since the open transaction has written, so that it may show what that wrote."""
    return any(each.loaded_since_it_wrote(state) for each in _open(session))


def _open(session: Session) -> Iterator[CapturedTransaction]:
    return _from(innermost_transaction(session))


def _from(transaction: SessionTransaction | None) -> Iterator[CapturedTransaction]:
    while isinstance(transaction, CapturedTransaction):
        yield transaction
        transaction = transaction.parent


def note_written_events(session: Session, events: int) -> None:
    """Note in the innermost savepoint, or in the transaction, that it holds so many more rows of the outbox."""
    _innermost(session).events_written += events


def events_written(session: Session) -> int:
    """Return how many rows of the outbox the open transaction holds that are not rolled back."""
    return sum(each.events_written for each in _open(session))


def after_unbirth(session: Session, instance: object) -> None:
    """Make what a rollback has made new again whole, or stale if it was loaded since it was stored.

    A loaded one has the state, and above all the children, of the rows that are gone: SQLAlchemy takes such a child
    for stored, and would not store it with its parent (C3b).
    """
    state = attributes.instance_state(instance)
    if state.key is not None:
        return  # one that was deleted comes here too, and so does, with its key, one whose deletion is committed
    forget_deletion(state)  # or, once stored again, it would count as deleted
    capture = known_state_of(session)
    birth = capture.birth_of(instance) if capture and isinstance(instance, AggregateRoot) else None
    if birth and birth.reloaded:
        expire_alone(state)
    else:
        _link_anew(state)


def _link_anew(state: InstanceState[Any]) -> None:
    """Let the next flush write the links to others again, which SQLAlchemy takes for stored since they once were."""
    for relationship in state.mapper.relationships:
        if not relationship.viewonly and state.dict.get(relationship.key) is not None:
            state.committed_state[relationship.key] = NO_VALUE
