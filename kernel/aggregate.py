"""Aggregates that record events and number them (K2), or live by them alone (K3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast, dataclass_transform, overload
from uuid import UUID

import attrs

from kernel import catalogue
from kernel.errors import AggregateHasNoId, DefinitionError, StaleAggregate, VersionMoved
from kernel.events import DomainEvent, refuse_recorded, stamp_event
from kernel.wire.types import fields_of, is_subclass, is_value_object, value_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

A = TypeVar("A", bound="AggregateRoot")
T = TypeVar("T")
M = TypeVar("M", bound="Callable[..., None]")

_APPLIED_EVENTS = "__applied_events__"


class _Identified:
    # Declared outside the attrs class, so that each aggregate says in its own fields what its id is.
    id: Any


def _define(cls: type[A]) -> type[A]:
    # A mapper instruments the class: no slots, identity instead of equality, and a repr that reads
    # no attribute which might have to be loaded.
    return attrs.define(cls, slots=False, eq=False, repr=False)


@dataclass_transform(eq_default=False, field_specifiers=(attrs.field,))
def _aggregate_class(cls: type[A]) -> type[A]:
    return _define(cls)


@_aggregate_class
class AggregateRoot(_Identified):
    """Base of all aggregates: the one object through which a consistency boundary is changed."""

    version: int = attrs.field(default=0, init=False)

    _appliers: ClassVar[dict[type[DomainEvent], Callable[..., None]]] = {}

    def __init_subclass__(cls) -> None:
        """Collect the `@applies` methods of the class and its bases."""
        super().__init_subclass__()
        own = {
            event_class: method
            for method in vars(cls).values()
            for event_class in getattr(method, _APPLIED_EVENTS, ())
        }
        cls._appliers = {**cls._appliers, **own}

    def record(self, event: DomainEvent) -> None:
        """Say that this happened: raise `version` by one and keep the event until it is committed."""
        version = self._loaded_version()
        catalogue.event_type_of(type(event))
        aggregate_type = catalogue.aggregate_type_of(type(self))
        if self._appliers:
            refuse_recorded(event)
            self._apply(event)
        stamp_event(event, aggregate_type, _identity(self), version + 1)
        log = self._recorded_log()
        while log and _number(log[-1]) > version:
            log.pop()  # recorded in a transaction that was rolled back since
        log.append(event)
        self.version = version + 1

    @property
    def recorded_events(self) -> tuple[DomainEvent, ...]:
        """The events recorded and neither committed nor collected, oldest first; no database is asked."""
        collected = self.__dict__.get("_collected_up_to", 0)
        version = self.__dict__.get("version", 0)
        return tuple(event for event in self._recorded_log() if collected < _number(event) <= version)

    def collect_events(self) -> tuple[DomainEvent, ...]:
        """Return the recorded events and clear them; capture, if installed, still writes each once."""
        events = self.recorded_events
        self.__dict__["_collected_up_to"] = self.__dict__.get("version", 0)
        return events

    @classmethod
    def replay(cls, events: Iterable[DomainEvent]) -> Self:
        """Rebuild an aggregate from its events, by its `@applies` methods alone (K3)."""
        instance = cls._blank()
        for number, event in enumerate(events, start=1):
            if event.aggregate_version not in (None, number):
                raise VersionMoved(
                    f"{cls.__name__} cannot be replayed: event {number} in the list is number "
                    f"{event.aggregate_version} of its stream; give all of them, in order"
                )
            instance._apply(event)
            instance.version = number
        return instance

    def __getattr__(self, name: str) -> Any:
        """Explain a missing field: the state was taken away by a rollback, and has to be loaded again."""
        if any(field.name == name for field in fields_of(type(self))):
            raise stale(self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        """Show identity and version from what is at hand; never load, never fail, never show a secret."""
        state = self.__dict__
        pending = len(self.recorded_events)
        return f"<{type(self).__name__} {state.get('id')} version={state.get('version')} recorded={pending}>"

    # --- for the units of work, which know what is committed -------------------------------------------

    @classmethod
    def _blank(cls) -> Self:
        """Make an instance with its defaults, to be filled by replay; a mapper may replace this."""
        instance = new_instance(cls)
        fill_defaults(instance)
        return instance

    def _events_between(self, row_version: int, version: int) -> Sequence[DomainEvent]:
        """Return the events numbered above `row_version` up to `version`; exactly these move the row."""
        events = [event for event in self._recorded_log() if row_version < _number(event) <= version]
        if len(events) != version - row_version:
            raise VersionMoved(
                f"{self!r} moved from version {row_version} to {version} with {len(events)} recorded "
                "event(s); only record() may raise the version, and merge() carries no events"
            )
        return events

    def _forget_events(self, *, above: int = -1, up_to: int | None = None) -> None:
        """Drop the events numbered above `above`, or up to `up_to`: rolled back, or committed."""
        if up_to is None:
            kept = [event for event in self._recorded_log() if _number(event) <= above]
        else:
            kept = [event for event in self._recorded_log() if _number(event) > up_to]
        self.__dict__["_recorded"] = kept
        self.__dict__.pop("_collected_up_to", None)

    def _recorded_log(self) -> list[DomainEvent]:
        # Kept beside the mapped attributes and made on first use: loading from a row runs no __init__.
        log: list[DomainEvent] = self.__dict__.setdefault("_recorded", [])
        return log

    def _loaded_version(self) -> int:
        version = self.__dict__.get("version")
        if version is None:
            raise stale(self)
        return int(version)

    def _apply(self, event: DomainEvent) -> None:
        applier = self._appliers.get(type(event))
        if applier is None:
            raise DefinitionError(
                f"{type(self).__name__} has no @applies method for {type(event).__name__}; "
                "an aggregate that lives by its events needs one for each"
            )
        applier(self, event)


def new_instance(cls: type[T]) -> T:
    """Make an empty instance, past the constructor."""
    # A mapped class keeps a state beside each instance, which its mapper's manager makes; without it the
    # instance could not be written to. It is a class's own: a subclass that is not mapped has none.
    manager: Any = vars(cls).get("_sa_class_manager")
    return cls.__new__(cls) if manager is None else cast("T", manager.new_instance())


def stale(instance: object) -> StaleAggregate:
    """Return the error for state that a rollback, an expiry or a deletion took away."""
    return StaleAggregate(
        f"{type(instance).__name__} is stale: its state was rolled back, expired or deleted; load it again"
    )


def fill_defaults(instance: AggregateRoot) -> None:
    """Give a blank instance the defaults that its constructor would have given it."""
    for field in fields_of(type(instance)):
        if isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]  # Factory is a class at run time
            factory: Any = field.default
            setattr(
                instance, field.name, factory.factory(instance) if factory.takes_self else factory.factory()
            )
        elif field.default is not attrs.NOTHING:
            setattr(instance, field.name, field.default)


def uuid_of(identity: object) -> UUID | None:
    """Return the UUID that an id is, or that a value object of one field holds; else None."""
    if isinstance(identity, UUID):
        return identity
    if identity is not None and is_value_object(type(identity)):
        return uuid_of(getattr(identity, value_field(type(identity)).name))
    return None


def _identity(aggregate: AggregateRoot) -> UUID:
    identity = aggregate.__dict__.get("id")
    uuid = identity if isinstance(identity, UUID) else uuid_of(identity)
    if uuid is None:
        raise AggregateHasNoId(
            f"{type(aggregate).__name__} has the id {identity!r}, so no event can be recorded on it; "
            "give it a UUID, or a value object of one, before recording"
        )
    return uuid


def _number(event: DomainEvent) -> int:
    return event.__dict__["_stamp"].aggregate_version  # type: ignore[no-any-return]  # record stamps every logged event


@overload
def aggregate(definition: type[A], /) -> type[A]: ...
@overload
def aggregate(definition: str | None = None, /) -> Callable[[type[A]], type[A]]: ...
@dataclass_transform(eq_default=False, field_specifiers=(attrs.field,))
def aggregate(definition: type[A] | str | None = None, /) -> type[A] | Callable[[type[A]], type[A]]:
    """Make a class an aggregate: `@aggregate`, or `@aggregate("group_message")` for a stable wire name."""

    def define(cls: type[A]) -> type[A]:
        if not is_subclass(cls, AggregateRoot):
            raise DefinitionError(
                f"@aggregate stands on a class derived from AggregateRoot, and {cls!r} is none"
            )
        defined = _define(cls)
        if "id" not in {field.name for field in fields_of(defined)}:
            raise DefinitionError(
                f"aggregate {cls.__name__} declares no id; add the field `id: UUID`, or a value object of one"
            )
        catalogue.add_aggregate(definition if isinstance(definition, str) else cls.__name__, defined)
        return defined

    return define(definition) if isinstance(definition, type) else define


def applies(*event_classes: type[DomainEvent]) -> Callable[[M], M]:
    """Mark the method through which these events change the aggregate's state (K3)."""
    if not event_classes:
        raise DefinitionError("@applies needs the event class that the method applies: @applies(OrderPlaced)")

    def mark(method: M) -> M:
        setattr(method, _APPLIED_EVENTS, event_classes)
        return method

    return mark
