"""Aggregates that record events and number them (K2), or live by them alone (K3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast, dataclass_transform, overload

import attrs

from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.applying import appliers_of
from outbox_kernel.kernel.constructors import check_bases, drop_stand_in, expect_version, stand_in
from outbox_kernel.kernel.errors import (
    AggregateHasNoId,
    DefinitionError,
    IdentityMoved,
    StaleAggregate,
    VersionMoved,
)
from outbox_kernel.kernel.events import DomainEvent, key_event, refuse_recorded, stamp_event
from outbox_kernel.kernel.identity import KeyRule, check_identity, stream_key
from outbox_kernel.kernel.mapped import is_deleted, manager_of
from outbox_kernel.kernel.watching import watch
from outbox_kernel.kernel.wire.head import moment_to_wait_for
from outbox_kernel.kernel.wire.records import SUBJECT
from outbox_kernel.kernel.wire.types import fields_of, is_inherited, is_subclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

A = TypeVar("A", bound="AggregateRoot")
T = TypeVar("T")

_OWN_NAMES = frozenset({"version", "record", "recorded_events", "collect_events", "replay"})


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

    _appliers: ClassVar[dict[type[DomainEvent], str]] = {}
    _key_rule: ClassVar[KeyRule] = KeyRule()
    # Its fields are attrs' to make; a mapper makes those of the others.
    _is_attrs: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        """Collect the `@applies` methods of the class and its bases."""
        super().__init_subclass__(**options)
        cls._appliers = appliers_of(cls)
        if cls._is_attrs:
            stand_in(cls, catalogue.aggregate_type_of)

    def record(self, event: DomainEvent, *, not_before: datetime | None = None) -> None:
        """Say that this happened: raise `version` by one and keep the event until it is committed.

        With `not_before` it is handled from that moment on, outside the order of the aggregate's events.
        """
        version = self._loaded_version()
        catalogue.event_type_of(type(event))
        moment = moment_to_wait_for(not_before, event)
        self._refuse_while_applying(event)
        aggregate_type = catalogue.aggregate_type_of(type(self))
        if self._appliers:
            refuse_recorded(event)
            self._apply(event)
        uuid, key = _stream_of(self)
        stamp_event(event, aggregate_type, uuid, version + 1, aggregate_key=key, not_before=moment)
        log = self._recorded_log()
        while log and _number(log[-1]) > version:
            log.pop()  # recorded in a transaction that was rolled back since
        # First, since a mapper that watches it may refuse; what is refused is no event.
        self.version = version + 1
        log.append(event)
        if (watching := watch.get()) is not None:
            watching.note(self)

    @property
    def recorded_events(self) -> tuple[DomainEvent, ...]:
        """The events recorded and neither committed nor collected, oldest first; no database is asked."""
        collected = self.__dict__.get("_collected_up_to", 0)
        version = self.__dict__.get("version", 0)
        return tuple(event for event in self._recorded_log() if collected < _number(event) <= version)

    def collect_events(self) -> tuple[DomainEvent, ...]:
        """Return the recorded events and clear them; capture, if installed, still writes each once."""
        self._key_events()
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
            instance._replay_one(event)
            instance.version = number
        return instance

    def __getattr__(self, name: str) -> Any:
        """Explain a missing field: the state was taken away by a rollback, and has to be loaded again."""
        if any(field.name == name for field in fields_of(type(self))):
            raise stale(self, name)
        if hasattr(type(self), name):
            # A property that failed: asked once more it says why, which Python drops before it asks here.
            return super().__getattribute__(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        """Show identity and version from what is at hand; never load, never fail, never show a secret."""
        state = self.__dict__
        pending = len(self.recorded_events)
        return f"<{type(self).__name__} {self._shown_id()} version={state.get('version')} recorded={pending}>"

    def _shown_id(self) -> object:
        return self.__dict__.get("id")

    # --- for the units of work, which know what is committed -------------------------------------------

    @classmethod
    def _blank(cls) -> Self:
        """Make an instance with its defaults, to be filled by replay; a mapper may replace this."""
        instance = new_instance(cls)
        fill_defaults(instance)
        return instance

    def _events_between(self, row_version: int, version: int) -> Sequence[DomainEvent]:
        """Return the events numbered above `row_version` up to `version`; exactly these move the row."""
        self._check_version(version)
        events = [event for event in self._recorded_log() if row_version < _number(event) <= version]
        if len(events) != version - row_version:
            raise VersionMoved(
                f"{self!r} moved from version {row_version} to {version} with {len(events)} recorded "
                "event(s); only record() may raise the version, and merge() carries no events"
            )
        self._check_recorded_here(events)
        return events

    def _uncommitted_events(self) -> Sequence[DomainEvent]:
        """Return the recorded events that no commit has stored, collected ones included."""
        version = self.__dict__.get("version", 0)
        return [event for event in self._recorded_log() if _number(event) <= version]

    def _check_version(self, version: int) -> None:
        """Refuse a version below that of the last event recorded, whose state would be stored without it."""
        log = self.__dict__.get("_recorded")
        if log and _number(log[-1]) > version:
            raise VersionMoved(
                f"the version of {self!r} was set back to {version}, and it has recorded event {_number(log[-1])}; "
                "only record() moves it, and a rollback takes events back"
            )

    def _forget_events(self, *, above: int = -1, up_to: int | None = None) -> None:
        """Drop the events numbered above `above`, or up to `up_to`: rolled back, or committed."""
        if up_to is None:
            kept = [event for event in self._recorded_log() if _number(event) <= above]
        else:
            kept = [event for event in self._recorded_log() if _number(event) > up_to]
        self.__dict__["_recorded"] = kept
        self.__dict__.pop("_collected_up_to", None)

    def _key_events(self) -> bool:
        """Tell the events of a new aggregate its id, once it has one; return whether they all know it."""
        unkeyed = [event for event in self._recorded_log() if event.stamp.aggregate_id is None]
        uuid, key = _stream_of(self) if unkeyed else (None, None)
        if uuid is not None:
            for event in unkeyed:
                key_event(event, uuid, key)
        return uuid is not None or not unkeyed

    def _complete(self, next_number: Callable[[], int], *, is_new: bool) -> None:
        """Get, in memory, what a row would bring: an id that is left to it."""
        if is_new and self._key_rule.may_come_later and id_of(self) is None:
            numbered: Any = self  # as its class declares its id, and this one does not
            numbered.id = next_number()

    def _unkey_events(self) -> None:
        """Let the events wait again: the row that made the id never was."""
        for event in self._recorded_log():
            key_event(event, None, None)

    def _recorded_log(self) -> list[DomainEvent]:
        # Kept beside the mapped attributes and made on first use: loading from a row runs no __init__.
        log: list[DomainEvent] = self.__dict__.setdefault("_recorded", [])
        return log

    def _loaded_version(self) -> int:
        version = self.__dict__.get("version")
        if version is None or is_deleted(self):
            raise stale(self)
        return int(version)

    def _check_recorded_here(self, events: Sequence[DomainEvent]) -> None:
        if "id" not in self.__dict__:
            return  # a mapper has expired it, and restores what the row has
        found = stream_key(self.__dict__["id"], self._key_rule.kinds)
        uuid = found and found[0]
        for event in events:
            if event.aggregate_id not in (None, uuid):
                before = event.aggregate_key or event.aggregate_id
                raise IdentityMoved(
                    f"{self!r} recorded {type(event).__name__} when its id was {before}; "
                    "give an aggregate its id before it records, and no other afterwards"
                )

    def _refuse_while_applying(self, event: DomainEvent) -> None:
        if "_applying" in self.__dict__:
            raise DefinitionError(
                f"{type(self).__name__} records {type(event).__name__} in an @applies method, and such a method "
                "only changes state: record in the method that decides"
            )

    def _apply(self, event: DomainEvent) -> None:
        applier = self._appliers.get(type(event))
        if applier is None:
            raise DefinitionError(
                f"{type(self).__name__} has no @applies method for {type(event).__name__}; "
                "an aggregate that lives by its events needs one for each"
            )
        self.__dict__["_applying"] = True
        try:
            getattr(self, applier)(event)
        finally:
            del self.__dict__["_applying"]

    def _replay_one(self, event: DomainEvent) -> None:
        try:
            self._apply(event)
        except StaleAggregate as error:
            if error.field is None or error.field in self.__dict__:
                raise  # of another aggregate
            raise VersionMoved(
                f"{type(self).__name__} cannot be replayed: the history does not set `{error.field}`; "
                "it begins with the event that does"
            ) from error


def new_instance(cls: type[T]) -> T:
    """Make an empty instance, past the constructor."""
    # A mapped class keeps a state beside each instance, which its mapper's manager makes; without it the
    # instance could not be written to. It is a class's own: a subclass that is not mapped has none.
    manager = manager_of(cls)
    return cls.__new__(cls) if manager is None else cast("T", manager.new_instance())


def stale(instance: object, field: str | None = None) -> StaleAggregate:
    """Return the error for state that a rollback, an expiry or a deletion took away."""
    return StaleAggregate(
        f"{type(instance).__name__} is stale: its state was rolled back, expired or deleted; load it again",
        field=field,
    )


def fill_defaults(instance: AggregateRoot) -> None:
    """Give a blank instance the defaults that its constructor would have given it."""
    for field in fields_of(type(instance)):
        if isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]  # Factory is a class at run time
            setattr(instance, field.name, _made_default(instance, field))
        elif field.default is not attrs.NOTHING:
            setattr(instance, field.name, field.default)


def _made_default(instance: AggregateRoot, field: attrs.Attribute[Any]) -> Any:
    factory: Any = field.default
    if not factory.takes_self:
        return factory.factory()
    try:
        return factory.factory(instance)
    except StaleAggregate as error:
        raise DefinitionError(
            f"the default of {type(instance).__name__}.{field.name} reads `{error.field}`, which its first event "
            f"sets; set `{field.name}` in the @applies method of that event"
        ) from error


def id_of(aggregate: AggregateRoot) -> object:
    """Return the id of an aggregate, None where it has none yet."""
    state = aggregate.__dict__
    if "id" in state:
        return state["id"]
    # A mapper that composes the id of columns keeps it nowhere, and makes it anew when it is asked.
    return getattr(aggregate, "id", None) if hasattr(type(aggregate), "id") else None


def _stream_of(aggregate: AggregateRoot) -> tuple[UUID | None, str | None]:
    """Return the UUID and the key that the aggregate's events carry; none where its row is to make its id."""
    cls, identity = type(aggregate), id_of(aggregate)
    if identity is None and cls._key_rule.may_come_later:
        return None, None
    found = stream_key(identity, cls._key_rule.kinds)
    if found is None:
        raise AggregateHasNoId(
            f"{cls.__name__} has the id {identity!r}, so no event can be recorded on it; "
            "give it a UUID, an int, a str, or a value object of one, as it declares, before recording"
        )
    return found


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
        if not cls._is_attrs:
            raise DefinitionError(
                f"{cls.__name__} maps itself, and @aggregate is for classes that do not; leave it out, and name the "
                "aggregate with `__aggregate__ = …` in the class"
            )
        drop_stand_in(cls)
        by_hand = "__init__" in vars(cls)
        defined = _define(cls)
        check_bases(defined, AggregateRoot, "@attrs.define(eq=False, slots=False)")
        _check_fields(defined)
        defined._key_rule = check_identity(defined)
        if by_hand:
            expect_version(defined)
        catalogue.add_aggregate(definition if isinstance(definition, str) else cls.__name__, defined)
        return defined

    return define(definition) if isinstance(definition, type) else define


def _check_fields(cls: type[AggregateRoot]) -> None:
    for field in fields_of(cls):
        own = field.name == "version" and is_inherited(field) and (field.default, field.init) == (0, False)
        if field.name in _OWN_NAMES and not own:
            raise DefinitionError(
                f"aggregate {cls.__name__} has a field named {field.name!r}, which every aggregate has by itself; "
                "leave it out, or choose another name"
            )
        if SUBJECT in field.metadata:
            raise DefinitionError(
                f"field {field.name!r} of aggregate {cls.__name__} is kept for a subject, and that is for the fields "
                "of events; how the aggregate's own row is stored is its table's affair, so write sensitive() here"
            )
