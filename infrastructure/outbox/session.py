"""What a captured session does beyond SQLAlchemy's: own a bus, lose no event, tell conflicts (C1-C4)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy.exc import DBAPIError, NoInspectionAvailable
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, attributes, scoped_session
from sqlalchemy.orm.exc import StaleDataError, UnmappedInstanceError

from outbox_kernel.infrastructure.outbox.capture import version_change
from outbox_kernel.infrastructure.outbox.capture_state import state_of
from outbox_kernel.infrastructure.outbox.conflicts import changed_first, raise_conflict, raise_lost_race
from outbox_kernel.infrastructure.outbox.emitted import Emitted, SessionBus, carriers_among
from outbox_kernel.infrastructure.outbox.mapping import refused_without_mapping
from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import (
    fail_flush,
    filled_by,
    has_nothing_to_flush,
    has_stored,
    innermost_transaction,
    is_flushing,
    is_new,
    new_objects,
)
from outbox_kernel.infrastructure.outbox.table_columns import raise_forgotten_columns
from outbox_kernel.infrastructure.outbox.transaction import (
    events_written,
    has_written,
    note_connection,
    note_lent_connection,
    note_read,
    note_statement,
    note_write,
    shows_what_is_not_committed,
)
from outbox_kernel.kernel.aggregate import AggregateRoot
from outbox_kernel.kernel.errors import KernelError, UncommittedEvents
from outbox_kernel.kernel.wire.types import is_subclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sqlalchemy import Connection
    from sqlalchemy.orm import InstanceState

    from outbox_kernel.infrastructure.outbox.capture import Capture

    AnySession = AsyncSession | Session | async_scoped_session[Any] | scoped_session[Any]


class CapturedSession(Session):
    """A session with capture; `install_capture` gives the same to an application's own class."""

    _closing = False
    _outbox_capture: ClassVar[Capture]

    @property
    def outbox(self) -> SessionBus:
        """The event bus of this session."""
        return SessionBus(self)

    def has_uncommitted_changes(self) -> bool:
        """Whether objects at hand differ, flushed or not, from what a rollback would leave."""
        if self.new or self.deleted or has_written(self):
            return True
        return any(self.is_modified(obj) for obj in self.dirty)

    def uncommitted_events(self) -> list[str]:
        """Name the events that closing now would lose."""
        if not self.in_transaction():
            return []
        events = [carrier.event for carrier in carriers_among(new_objects(self))]
        for obj in self:
            if isinstance(obj, AggregateRoot):
                events += obj._uncommitted_events()
        if not events and events_written(self):
            return ["those that a flush has written"]  # and whose objects nobody holds any more
        return [type(event).__name__ for event in events]

    def flush(self, objects: Any = None) -> None:
        """Flush, with conflicts told as ConcurrencyError, and with all that listeners emit meanwhile."""
        if objects is not None:
            raise KernelError(
                "a session with capture flushes as a whole, rows with their events; call flush()"
            )
        if has_nothing_to_flush(self):
            return  # as SQLAlchemy would, and ask no listener: every query comes here first
        state = state_of(self)
        state.flushing = True
        try:
            super().flush()
            self._outbox_capture.write_late(self)
        except BaseException as error:
            self._undo_flush()
            raise_conflict(error)
            if isinstance(error, DBAPIError):
                raise_forgotten_columns(error)
            raise
        finally:
            state.flushing = state.settled = False
            state.late.clear()
            state.unkeyed, state.outgoing = [], None
            state.in_flush.clear()

    def _undo_flush(self) -> None:
        # SQLAlchemy does so for its own part of a flush. A listener that refuses before or after it would leave
        # rows of the outbox in a transaction that the caller may still commit.
        if self.is_active:
            fail_flush(self)

    def _execute_internal(self, statement: Any, *args: Any, **options: Any) -> Any:
        # Where every statement comes through: of `execute`, `scalars`, `get`, and of what loads an attribute.
        note_statement(self, statement)
        if getattr(statement, "is_select", False) and (filled := filled_by(options)) is not None:
            note_read(self, filled)  # in one attribute, by which SQLAlchemy takes it for no younger
        try:
            return super()._execute_internal(statement, *args, **options)
        except DBAPIError as error:
            raise_lost_race(error)
            raise_forgotten_columns(error)
            raise

    def connection(self, bind_arguments: Any = None, execution_options: Any = None) -> Connection:
        """Return the connection, through which may be written what no listener hears of.

        Whoever says how it is to execute, as to set the isolation level, is taken to write nothing through it.
        """
        if not is_flushing(self):
            note_connection(self)
        if not (execution_options or is_flushing(self)):
            note_lent_connection(self)
        return super().connection(bind_arguments, execution_options)

    def _get_impl(self, entity: Any, *args: Any, **options: Any) -> Any:
        # Of `get` and `get_one`: one that locks the row compares it with the object at hand.
        try:
            return super()._get_impl(entity, *args, **options)
        except StaleDataError as error:
            raise changed_first(error) from error
        except NoInspectionAvailable as error:
            if is_subclass(entity, AggregateRoot):
                raise refused_without_mapping(entity) from error
            raise

    def add(self, instance: object, *args: Any, **options: Any) -> None:
        """Add, and say of an aggregate that is mapped to nothing what it lacks."""
        try:
            super().add(instance, *args, **options)
        except UnmappedInstanceError as error:
            if isinstance(instance, AggregateRoot):
                raise refused_without_mapping(type(instance)) from error
            raise

    def merge(self, instance: Any, **options: Any) -> Any:
        """Merge, with a row that another writer has changed since told as ConcurrencyError."""
        try:
            return super().merge(instance, **options)
        except (StaleDataError, DBAPIError) as error:
            raise_conflict(error)
            raise

    def bulk_save_objects(self, objects: Iterable[object], *args: Any, **options: Any) -> None:
        """Save past the unit of work, which writes no events; so none may be waiting to be written."""
        objects = list(objects)
        told = next(
            (each for each in objects if isinstance(each, AggregateRoot) and each._recorded_log()), None
        )
        if told is not None:
            raise UncommittedEvents(
                f"{told!r} has events that are not committed, and bulk_save_objects would store it without them; "
                "use add_all"
            )
        super().bulk_save_objects(objects, *args, **options)

    def _bulk_save_mappings(self, *args: Any, **options: Any) -> None:
        # Where the bulk methods meet, which write rows and ask no listener.
        note_write(self)
        super()._bulk_save_mappings(*args, **options)

    def expunge(self, instance: object) -> None:
        """Take an object out of the session, unless its events would be lost with it, or a rollback on it."""
        _refuse_loss(self, [instance, *_expunged_with(instance)])
        super().expunge(instance)

    def expunge_all(self) -> None:
        """Take all objects out of the session, unless events would be lost with them, or a rollback on them."""
        if not self._closing:
            _refuse_loss(self, list(self))
        super().expunge_all()

    def _expire_state(self, state: InstanceState[Any], attribute_names: Iterable[str] | None) -> None:
        # Where `expire` and `refresh` meet, after the flush that the latter makes first.
        names = list(attribute_names or ())
        _refuse_half(self, state, names)
        super()._expire_state(state, names or None)

    # A close gives up what is not committed, so nothing is lost that was not given up with it.

    def close(self) -> None:
        """Close, giving up what is not committed."""
        self._give_up(super().close)

    def reset(self) -> None:
        """Reset, giving up what is not committed."""
        self._give_up(super().reset)

    def invalidate(self) -> None:
        """Close and drop the connection, giving up what is not committed."""
        self._give_up(super().invalidate)

    def _give_up(self, close: Any) -> None:
        self._closing = True
        try:
            if has_written(self):
                # A mere close would leave what was written looking stored, and what is new could never be added again.
                self.rollback()
        finally:
            close()
            self._closing = False


def sync_session_of(session: AnySession) -> Session:
    """Return the session itself of whatever stands for one: an asynchronous session, a scope's."""
    held: AsyncSession | Session
    held = session.registry() if isinstance(session, scoped_session | async_scoped_session) else session
    return held.sync_session if isinstance(held, AsyncSession) else held


def bus_of(session: AnySession) -> SessionBus:
    """Return the event bus of a session with capture, to emit what no aggregate records."""
    captured = sync_session_of(session)
    if not isinstance(captured, CapturedSession):
        raise KernelError(
            "this session does not capture events; make it with session_factory(engine), "
            "or call install_capture on its maker"
        )
    return captured.outbox


def _refuse_loss(session: Session, objects: Collection[object]) -> None:
    emitted = [obj.event for obj in objects if isinstance(obj, Emitted)]
    if emitted:
        raise UncommittedEvents(
            f"an emitted {type(emitted[0]).__name__} is not committed, and expunging all would lose it; "
            "commit first, or roll back to give it up"
        )
    aggregates = [obj for obj in objects if isinstance(obj, AggregateRoot) and obj in session]
    leaving = [each for each in aggregates if _has_unwritten(session, each)]
    if leaving:
        raise UncommittedEvents(
            f"{leaving[0]!r} has events that are not committed, and expunging it would lose them; "
            "commit first, or roll back to give them up"
        )
    written = [each for each in aggregates if _is_written(session, each)]
    if written:
        raise UncommittedEvents(
            f"{written[0]!r} is written and not committed, and once expunged it would keep through a rollback what "
            "no row has; commit first, or roll back"
        )
    changed = [each for each in aggregates if _is_changed(session, each)]
    if changed:
        raise UncommittedEvents(
            f"{changed[0]!r} has changes that are not committed, and once expunged it would keep them through a "
            "rollback; commit first, or roll back"
        )
    loaded = [each for each in aggregates if _is_read_of_writes(session, each)]
    if loaded:
        raise UncommittedEvents(
            f"{loaded[0]!r} was loaded after its transaction had written, and once expunged it would keep through a "
            "rollback what it shows of that; commit first, or roll back"
        )
    _refuse_parts(session, objects, "expunge")


def _refuse_half(session: Session, state: InstanceState[Any], names: Iterable[str]) -> None:
    """Refuse to take back a part of what uncommitted events tell of; the whole takes the events with it."""
    aggregate = state.obj()
    if not isinstance(aggregate, AggregateRoot):
        _refuse_parts(session, [aggregate], "expire or refresh")
    if not _has_unwritten(session, aggregate):
        return
    changed = [name for name in names if state.attrs[name].history.has_changes()]
    if changed:
        raise UncommittedEvents(
            f"{aggregate!r} has events that are not committed, and to expire or refresh {', '.join(changed)} alone "
            f"would drop its change of {changed[0]} and keep them; expire it whole, or flush first"
        )


def _refuse_parts(session: Session, objects: Iterable[object], verb: str) -> None:
    """Refuse to take back the change of a child alone, of which its aggregate's uncommitted events may tell."""
    changed = {
        id(obj) for obj in objects if not isinstance(obj, AggregateRoot) and _is_unflushed(session, obj)
    }
    if not changed:
        return
    for whole in filter(partial(_has_unwritten, session), (*session.new, *session.dirty)):
        part = next((each for each in _expunged_with(whole) if id(each) in changed), None)
        if part is not None:
            raise UncommittedEvents(
                f"{whole!r} has events that are not committed, and to {verb} its {type(part).__name__} alone would "
                "drop the change of that and keep them; flush first, or roll back"
            )


def _is_unflushed(session: Session, obj: object) -> bool:
    return is_new(session, attributes.instance_state(obj)) or session.is_modified(obj)


def _expunged_with(instance: object) -> list[object]:
    state = attributes.instance_state(instance)
    return [each[0] for each in state.manager.mapper.cascade_iterator("expunge", state)]


def _has_unwritten(session: Session, obj: object) -> bool:
    """Whether an object holds events that its row, in this transaction, does not count yet."""
    if not isinstance(obj, AggregateRoot):
        return False
    if obj in session.new:
        return bool(obj.__dict__.get("version"))
    return obj in session and version_change(obj) is not None


def _is_changed(session: Session, aggregate: AggregateRoot) -> bool:
    """Whether the aggregate or a child of it has a change that no flush has written."""
    parts = () if aggregate in session.new else (aggregate, *_expunged_with(aggregate))
    return any(session.is_modified(part) for part in parts)


def _is_read_of_writes(session: Session, obj: object) -> bool:
    state = attributes.instance_state(obj)
    return not state.expired and shows_what_is_not_committed(session, state)


def _is_written(session: Session, obj: object) -> bool:
    """Whether the open transaction, or one of its savepoints, has stored the object."""
    state = attributes.instance_state(obj)
    transaction = innermost_transaction(session)
    while transaction is not None:
        if has_stored(transaction, state):
            return True
        transaction = transaction.parent
    return False
