"""The unit of work in memory: section C without a database and without savepoints (K12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast

from outbox_kernel.kernel.aggregate import AggregateRoot
from outbox_kernel.kernel.errors import UnitOfWorkNotOpen
from outbox_kernel.kernel.testing.rules import normalized
from outbox_kernel.kernel.testing.store import InMemoryStore
from outbox_kernel.kernel.testing.unit import Unit
from outbox_kernel.kernel.unit_of_work import check_aggregate_class
from outbox_kernel.kernel.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType

    from outbox_kernel.kernel.bus import EventBus
    from outbox_kernel.kernel.events import DomainEvent
    from outbox_kernel.kernel.testing.rules import Uniqueness

A = TypeVar("A", bound=AggregateRoot)


class InMemoryRepository(Generic[A]):
    """The aggregates of one class; named queries of a domain are methods that call `find` or `list`."""

    def __init__(self, unit_of_work: InMemoryUnitOfWork, aggregate_class: type[A]) -> None:
        self._unit_of_work = unit_of_work
        self._class = aggregate_class

    def add(self, aggregate: A) -> None:
        """Take a new aggregate in."""
        self._unit_of_work.unit.add(aggregate)

    async def get(self, identity: object) -> A | None:
        """Return the aggregate with this id, loaded anew if it is stale, or None."""
        return cast("A | None", self._unit_of_work.unit.get((self._class, normalized(identity))))

    async def remove(self, aggregate: A) -> None:
        """Delete an aggregate; its events are kept."""
        self._unit_of_work.unit.remove(aggregate)

    async def find(self, predicate: Callable[[A], bool]) -> A | None:
        """Return the first aggregate of which the predicate holds, or None."""
        return next((aggregate for aggregate in await self.list() if predicate(aggregate)), None)

    async def list(self) -> Sequence[A]:
        """Return all aggregates of the class as this unit of work sees them."""
        return cast("Sequence[A]", self._unit_of_work.unit.all(self._class))


class InMemoryUnitOfWork:
    """`async with uow:` … `await uow.commit()`; leaving without a commit rolls back.

    Entering again begins anew, so one object serves the retries of a use case. Several on one store are
    concurrent writers. A change of a child entity counts as a change of its root, also without an event.
    """

    unique: ClassVar[Mapping[type[Any], Uniqueness]] = {}
    """What must be unique: `{Account: {"email": EmailTaken}}`, a tuple for fields that are so together."""

    def __init__(self, store: InMemoryStore | None = None) -> None:
        self.store: InMemoryStore = InMemoryStore() if store is None else store
        """What is committed."""
        self._unit: Unit | None = None

    @property
    def unit(self) -> Unit:
        """What the open block holds, for repositories."""
        if self._unit is None:
            raise UnitOfWorkNotOpen(f"{type(self).__name__} is not open; use it inside `async with uow:`")
        return self._unit

    @property
    def bus(self) -> EventBus:
        """The collector of this unit's emitted events; they wait for the commit, in a database perhaps not so long."""
        return self.unit.bus

    async def __aenter__(self) -> Self:
        """Begin."""
        if self._unit is not None:
            raise UnitOfWorkNotOpen(
                f"{type(self).__name__} is open already; a unit of work is entered once at a time"
            )
        self._unit = Unit(self.store)
        self._watch = Watch(self._unit.without_place)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Roll back what was not committed; after a block that only read, aggregates stay readable."""
        unit, self._unit = self.unit, None
        uncommitted = unit.uncommitted_events() if error is None else []
        if error is not None:
            self._watch.rolled_back()
        forgotten = self._watch.end()
        unit.leave()
        if error is None:
            self._watch.tell(uncommitted, forgotten)

    async def commit(self) -> None:
        """Make everything since the last commit durable, events included, or raise and store nothing."""
        unit = self.unit
        try:
            unit.commit(self.unique)
        except BaseException:
            self._watch.rolled_back()
            raise
        self._watch.committed()

    async def rollback(self) -> None:
        """Undo everything since the last commit."""
        self.unit.roll_back()
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

    def repository(self, aggregate_class: type[A]) -> InMemoryRepository[A]:
        """Return the repository of an aggregate class."""
        _ = self.unit  # outside the block it is refused here, as everything is
        check_aggregate_class(aggregate_class)
        return InMemoryRepository(self, aggregate_class)
