"""The unit of work on PostgreSQL: one captured session per `async with`, one transaction per commit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from asyncpg.exceptions import InternalClientError
from sqlalchemy import inspect
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker  # noqa: TC002 - the container reads them

from outbox_kernel.infrastructure.outbox.capture_state import state_of
from outbox_kernel.infrastructure.outbox.conflicts import as_conflict, constraint_name
from outbox_kernel.infrastructure.outbox.mapping import refused_without_mapping, row_key
from outbox_kernel.infrastructure.outbox.session import CapturedSession
from outbox_kernel.infrastructure.postgres.explain import explain
from outbox_kernel.kernel.aggregate import AggregateRoot
from outbox_kernel.kernel.errors import KernelError, UnitOfWorkNotOpen
from outbox_kernel.kernel.unit_of_work import check_aggregate_class
from outbox_kernel.kernel.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType

    from sqlalchemy.orm import InstanceState

    from outbox_kernel.kernel.bus import EventBus
    from outbox_kernel.kernel.events import DomainEvent

A = TypeVar("A", bound=AggregateRoot)

# The second passes through SQLAlchemy as it is.
_DATABASE_ERRORS = (SQLAlchemyError, InternalClientError)


class SqlAlchemyRepository(Generic[A]):
    """The aggregates of one mapped class."""

    def __init__(self, session: AsyncSession, aggregate_class: type[A]) -> None:
        self._session = session
        self._class = aggregate_class

    def add(self, aggregate: A) -> None:
        """Take a new aggregate in."""
        if _state_of(aggregate).was_deleted:
            raise KernelError(
                f"{aggregate!r} was removed, so it cannot be added; roll back, or make a new one"
            )
        self._session.add(aggregate)

    async def get(self, identity: object) -> A | None:
        """Return the aggregate with this id, loaded anew if it is stale, or None."""
        return await self._session.get(self._class, row_key(self._class, identity))

    async def remove(self, aggregate: A) -> None:
        """Delete an aggregate; its events are kept."""
        state = _state_of(aggregate)
        if state.was_deleted:
            return
        if state.key is None or state_of(self._session.sync_session).birth_of(aggregate):
            raise KernelError(f"{aggregate!r} is not stored, so it cannot be removed; commit it first")
        await self._session.delete(aggregate)
        # A later flush would insert what takes its place before it deletes this.
        await self._session.flush()


def _state_of(aggregate: AggregateRoot) -> InstanceState[Any]:
    state: InstanceState[Any] | None = inspect(aggregate, raiseerr=False)
    if state is None:
        raise refused_without_mapping(type(aggregate))
    return state


class SqlAlchemyUnitOfWork:
    """`async with uow:` … `await uow.commit()`; leaving without a commit rolls back.

    Entering again begins anew, so one object serves the retries of a use case.
    """

    constraint_errors: ClassVar[Mapping[str, Callable[[], Exception]]] = {}
    """What a violated constraint means in the domain: its name to a maker of the error to raise."""

    def __init__(self, session_factory: async_sessionmaker[Any]) -> None:
        self._session_factory = session_factory
        self._session: AsyncSession | None = None

    @property
    def session(self) -> AsyncSession:
        """The session of the open unit, for repositories and queries."""
        if self._session is None:
            raise UnitOfWorkNotOpen(f"{type(self).__name__} is not open; use it inside `async with uow:`")
        return self._session

    @property
    def bus(self) -> EventBus:
        """The collector of this unit's emitted events; a query or a flush may have written some already."""
        return self._captured(self.session).outbox

    async def __aenter__(self) -> Self:
        """Begin."""
        if self._session is not None:
            raise UnitOfWorkNotOpen(
                f"{type(self).__name__} is open already; a unit of work is entered once at a time"
            )
        session = self._session_factory()
        self._captured(session)
        self._session = session
        self._watch = Watch(_without_session)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Roll back what was not committed, and say in the domain's words what the database refused."""
        session, self._session = self.session, None
        uncommitted = self._captured(session).uncommitted_events() if error is None else []
        if error is not None:
            self._watch.rolled_back()
        forgotten = self._watch.end()
        try:
            if session.in_transaction():
                # Shielded: a cancellation must not leave the connection to the garbage collector.
                await asyncio.shield(asyncio.create_task(self._give_up(session)))
            else:
                await session.close()  # there is nothing to undo, and no connection to give back
        except _DATABASE_ERRORS as failure:
            # The connection is lost, and with it the transaction. What went wrong first is what the caller awaits.
            if error is None:
                self._raise_explained(failure, session)
                raise
            error.add_note(f"leaving the unit of work, the rollback found the connection lost: {failure}")
        if error is not None:
            self._raise_explained(error, session)
        else:
            self._watch.tell(uncommitted, forgotten)

    async def commit(self) -> None:
        """Make everything since the last commit durable, events included, or raise and store nothing."""
        session = self.session
        try:
            await session.commit()
        except Exception as error:
            await session.rollback()
            self._watch.rolled_back()
            self._raise_explained(error, session)
            raise
        self._watch.committed()

    async def rollback(self) -> None:
        """Undo everything since the last commit."""
        await self.session.rollback()
        self._watch.rolled_back()

    def emit(
        self,
        event: DomainEvent,
        *,
        aggregate_type: str | type[AggregateRoot] | None = None,
        aggregate_id: object = None,
        not_before: datetime | None = None,
    ) -> None:
        """Commit an event that no aggregate of this unit records; with `not_before`, to be handled from then on."""
        self.bus.emit(event, aggregate_type=aggregate_type, aggregate_id=aggregate_id, not_before=not_before)

    def repository(self, aggregate_class: type[A]) -> SqlAlchemyRepository[A]:
        """Return the repository of a mapped aggregate class."""
        check_aggregate_class(aggregate_class)
        return SqlAlchemyRepository(self.session, aggregate_class)

    async def _give_up(self, session: AsyncSession) -> None:
        """Close, and take back what objects at hand were told and no commit has stored."""
        try:
            # Closing alone would detach an object with its changes, and the next session that it is added to
            # would commit them. A block that only read has nothing to take back, and its objects stay readable.
            if self._captured(session).has_uncommitted_changes():
                await session.rollback()
        finally:
            await session.close()

    def _captured(self, session: AsyncSession) -> CapturedSession:
        """Refuse a session that would store aggregates without their events."""
        if not isinstance(session.sync_session, CapturedSession):
            raise KernelError(
                "the sessions of this unit of work do not capture events; "
                "make them with session_factory(engine), or call install_capture on their maker"
            )
        return session.sync_session

    def _raise_explained(self, error: BaseException, session: AsyncSession) -> None:
        """Raise what a database error means; return if it has no better words."""
        if not isinstance(error, _DATABASE_ERRORS):
            return  # an error of the use case's own
        make = self.constraint_errors.get(constraint_name(error) or "")
        meaning: Any = make() if make else as_conflict(error) or _explained(error, session)
        if meaning is not None:
            raise meaning from error


def _without_session(aggregates: Sequence[AggregateRoot]) -> list[AggregateRoot]:
    states: list[tuple[AggregateRoot, InstanceState[Any] | None]]
    states = [(each, inspect(each, raiseerr=False)) for each in aggregates]
    return [each for each, state in states if state is None or state.session is None]


def _explained(error: BaseException, session: AsyncSession) -> Exception | None:
    engine = session.bind
    if engine is None:
        return None
    return explain(error, engine.engine.url)
