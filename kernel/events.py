"""Domain events: frozen facts with a stable wire name (K1), and fields that must not be shown (K11)."""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, dataclass_transform, overload
from uuid import UUID

import attrs

from outbox_kernel.kernel import catalogue, clock
from outbox_kernel.kernel.constructors import check_bases, drop_stand_in, stand_in
from outbox_kernel.kernel.errors import AlreadyRecorded, DefinitionError
from outbox_kernel.kernel.wire.checks import check_restorable, check_round_trips, resolve_annotations
from outbox_kernel.kernel.wire.head import checked_id, utc_moment
from outbox_kernel.kernel.wire.names import EVENT_VERSION, check_distinct, event_names
from outbox_kernel.kernel.wire.owning import TAKEN, with_own_copies
from outbox_kernel.kernel.wire.records import FORGOTTEN, MASK, SUBJECT, record_fields
from outbox_kernel.kernel.wire.subjects import sealed_fields
from outbox_kernel.kernel.wire.types import fields_of, is_inherited, is_subclass

if TYPE_CHECKING:
    from collections.abc import Callable

E = TypeVar("E", bound="DomainEvent")
T = TypeVar("T")

Layout = Literal["snake", "camel"]

# Keys that the envelope adds beside a payload (X5), and names the event object needs for itself.
RESERVED_FIELDS = frozenset(
    {
        "event_type",
        "event_version",
        "aggregate_type",
        "aggregate_id",
        "aggregate_key",
        "aggregate_version",
        "timestamp",
        "stamp",
    }
)

# What every event has by itself.
_OWN_FIELDS = {"event_id": UUID, "occurred_at": datetime}

_sequence = itertools.count(1)


class Stamp(NamedTuple):
    """Where an event stands: whose it is, which number of its stream, and when it was recorded."""

    aggregate_type: str | None = None
    aggregate_id: UUID | None = None
    aggregate_version: int | None = None
    sequence: int = 0
    aggregate_key: str | None = None
    not_before: datetime | None = None


_UNSTAMPED = Stamp()


def sensitive(*, subject: str | None = None, forgotten: Any = attrs.NOTHING, **options: Any) -> Any:
    """Declare a field whose value is masked in `repr`, in logs and by the command line (K11).

    In a dataclass or a pydantic model the type says it: `token: Annotated[str, sensitive()]`.

    With `subject`, the field of the event that says whose it is, it is stored encrypted with a key of that one alone.
    Once that one is forgotten it reads as `forgotten` (O6): by itself None if it is optional, "" if it is a str.
    """
    if "repr" in options:
        raise DefinitionError(
            "sensitive() takes no repr=, since what it declares is never shown; leave it out"
        )
    metadata = {**options.pop("metadata", {}), "sensitive": True}
    if subject is not None:
        metadata |= {SUBJECT: subject, FORGOTTEN: forgotten}
    elif forgotten is not attrs.NOTHING:
        raise DefinitionError(
            "sensitive(forgotten=…) says how a field reads once its subject is forgotten; name the subject, too"
        )
    return attrs.field(**options, metadata=metadata, repr=lambda _: MASK)


@dataclass_transform(frozen_default=True, field_specifiers=(attrs.field, sensitive))
def _frozen(cls: type[T]) -> type[T]:
    # slots=False: attrs then fills the instance's dict at once, which is twice as fast for a
    # frozen class, and the decorated class stays the very class that was written.
    return attrs.define(cls, frozen=True, slots=False, field_transformer=with_own_copies)


@_frozen
class DomainEvent:
    """Base of all domain events: something that happened, never changed afterwards."""

    event_id: UUID = attrs.field(
        kw_only=True, factory=clock.new_id, converter=attrs.Converter(checked_id, takes_self=True)
    )
    occurred_at: datetime = attrs.field(
        kw_only=True,
        factory=clock.now,
        converter=attrs.Converter(utc_moment, takes_self=True),
        metadata={TAKEN: True},
    )

    def __init_subclass__(cls, **options: Any) -> None:
        """Let a class that `@event` does not stand on say so when it is used."""
        super().__init_subclass__(**options)
        stand_in(cls, catalogue.event_type_of)

    @property
    def stamp(self) -> Stamp:
        """Where this event stands; empty until it is recorded or emitted, not compared, not stored."""
        stamp: Stamp = self.__dict__.get("_stamp", _UNSTAMPED)
        return stamp

    @property
    def aggregate_type(self) -> str | None:
        """The wire name of the aggregate that recorded this event."""
        return self.stamp.aggregate_type

    @property
    def aggregate_id(self) -> UUID | None:
        """The id of the aggregate that recorded this event, or the UUID derived from it."""
        return self.stamp.aggregate_id

    @property
    def aggregate_key(self) -> str | None:
        """The id of the aggregate as it is written, where it is no UUID."""
        return self.stamp.aggregate_key

    @property
    def aggregate_version(self) -> int | None:
        """The event's number in its aggregate's stream, from 1, without gaps."""
        return self.stamp.aggregate_version


def refuse_recorded(event: DomainEvent) -> None:
    """Raise AlreadyRecorded if the event has its place already."""
    if "_stamp" in event.__dict__:
        raise AlreadyRecorded(
            f"{type(event).__name__} {event.event_id} was recorded or emitted before; make a new event"
        )


def stamp_event(
    event: DomainEvent,
    aggregate_type: str | None,
    aggregate_id: UUID | None,
    aggregate_version: int | None,
    *,
    aggregate_key: str | None = None,
    not_before: datetime | None = None,
) -> None:
    """Write on an event, once, where it stands."""
    refuse_recorded(event)
    event.__dict__["_stamp"] = Stamp(
        aggregate_type, aggregate_id, aggregate_version, next(_sequence), aggregate_key, not_before
    )


def key_event(event: DomainEvent, aggregate_id: UUID | None, aggregate_key: str | None) -> None:
    """Write on an event whose aggregate it is of, which was recorded before that had an id."""
    event.__dict__["_stamp"] = event.stamp._replace(aggregate_id=aggregate_id, aggregate_key=aggregate_key)


@overload
def event(definition: type[E], /) -> type[E]: ...
@overload
def event(
    definition: str | None = None, /, *, version: int = 1, layout: Layout = "snake", first_version: int = 1
) -> Callable[[type[E]], type[E]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(attrs.field, sensitive))
def event(
    definition: type[E] | str | None = None,
    /,
    *,
    version: int = 1,
    layout: Layout = "snake",
    first_version: int = 1,
) -> type[E] | Callable[[type[E]], type[E]]:
    """Make a class a domain event: `@event`, or `@event("group_message.queued", version=2, layout="camel")`.

    The wire name (default: the class name) and version are what the outbox stores; renaming or moving
    the class changes neither. `first_version` is the oldest that may be stored, if that is not 1. Definitions
    that could not be stored and restored fail here, at import.
    """

    def define(cls: type[E]) -> type[E]:
        name = definition if isinstance(definition, str) else cls.__name__
        return _define(catalogue.EventType(name, version, layout, cls, first_version), cls)

    return define(definition) if isinstance(definition, type) else define


def _define(event_type: catalogue.EventType, cls: type[E]) -> type[E]:
    _check(event_type)
    drop_stand_in(cls)
    _check_fields(_frozen(cls), event_type.name, event_type.layout)
    check_bases(cls, DomainEvent, "@attrs.frozen")
    sealed = sealed_fields(cls, event_type.layout, f"event {event_type.name!r}")
    catalogue.add_event(attrs.evolve(event_type, sealed=sealed))
    return cls


def _check(event_type: catalogue.EventType) -> None:
    name, version, first_version = event_type.name, event_type.version, event_type.first_version
    if not is_subclass(event_type.cls, DomainEvent):
        raise DefinitionError(
            f"@event stands on a class derived from DomainEvent, and {event_type.cls!r} is none"
        )
    if version < 1:
        raise DefinitionError(f"event {name!r} has version {version}; versions count from 1")
    if not 1 <= first_version <= version:
        raise DefinitionError(
            f"event {name!r} has first_version {first_version}; give one from 1 to its version, {version}"
        )
    if event_type.layout not in ("snake", "camel"):
        raise DefinitionError(f"event {name!r} has layout {event_type.layout!r}; choose 'snake' or 'camel'")
    catalogue.check_wire_name("event", name)


def _check_fields(cls: type[Any], name: str, layout: Layout) -> None:
    resolve_annotations(cls, f"event {name!r}")
    for field in fields_of(cls):
        if field.name in RESERVED_FIELDS or field.name.startswith("_"):
            raise DefinitionError(
                f"event {name!r} has a field named {field.name!r}, which the envelope uses; "
                "choose another name"
            )
        own_type = _OWN_FIELDS.get(field.name)
        if own_type and not (is_inherited(field) and field.type is own_type):
            raise DefinitionError(
                f"event {name!r} has a field named {field.name!r}, which every event has by itself; "
                "leave it out, or choose another name"
            )
    for told in record_fields(cls):
        check_restorable(told, f"event {name!r}, field {told.name!r}")
        if told.is_argument:
            check_round_trips(told.type, f"event {name!r}, field {told.name!r}")
    added = [EVENT_VERSION] if layout == "camel" else []
    check_distinct([*added, *event_names(cls, layout).values()], f"event {name!r}")
