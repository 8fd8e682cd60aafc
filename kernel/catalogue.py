"""What is defined in this process: event types, aggregate types and upcasters, by their stable names."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import attrs

from outbox_kernel.kernel.errors import DefinitionError, DuplicateName, UnknownEventType
from outbox_kernel.kernel.limits import NAME_CHARACTERS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outbox_kernel.kernel.aggregate import AggregateRoot
    from outbox_kernel.kernel.events import DomainEvent
    from outbox_kernel.kernel.wire.subjects import SealedField

Payload = dict[str, Any]


@attrs.frozen(eq=False)
class EventType:
    """An event's identity on the wire."""

    name: str
    version: int
    layout: Literal["snake", "camel"]
    cls: type[DomainEvent]
    first_version: int = 1
    sealed: tuple[SealedField, ...] = ()


@attrs.define
class _Definitions:
    event_by_class: dict[type, EventType] = attrs.Factory(dict)
    event_by_name: dict[str, dict[int, EventType]] = attrs.Factory(dict)
    aggregate_by_class: dict[type, str] = attrs.Factory(dict)
    aggregate_by_name: dict[str, type[AggregateRoot]] = attrs.Factory(dict)
    upcasters: dict[tuple[str, int], Callable[[Payload], Payload]] = attrs.Factory(dict)
    handlers: dict[str, Any] = attrs.Factory(dict)

    def copy(self) -> _Definitions:
        copy = _Definitions(
            **{field.name: dict(getattr(self, field.name)) for field in attrs.fields(_Definitions)}
        )
        copy.event_by_name = {name: dict(versions) for name, versions in self.event_by_name.items()}
        return copy


definitions = _Definitions()


@contextmanager
def isolated_definitions() -> Iterator[None]:
    """Forget, when the block ends, every event, aggregate, upcaster and handler defined in it; for tests."""
    before = definitions.copy()
    try:
        yield
    finally:
        for field in attrs.fields(_Definitions):
            setattr(definitions, field.name, getattr(before, field.name))


def check_wire_name(kind: str, name: str) -> None:
    """Refuse a name that would be hard to store, to route by or to type."""
    written = isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*", name)
    if not written or len(name) > NAME_CHARACTERS_MAX:
        raise DefinitionError(
            f"{kind} name {name!r} cannot be used; take letters, digits, dots, dashes and underscores, "
            f"{NAME_CHARACTERS_MAX} at the most"
        )


def full_name(definition: Any) -> str:
    """Name a class or function as a person would look for it."""
    return f"{definition.__module__}.{definition.__qualname__}"


def is_redefined(present: Any, definition: Any) -> bool:
    """Tell whether a definition replaces the present one: its module was run again, or for the first time whole.

    What a function defines has no place of its own in a module, so that two of a name may be two.
    """
    return full_name(present) == full_name(definition) and "<" not in definition.__qualname__


def add_event(event_type: EventType) -> None:
    """Register an event type; its (name, version) must be free."""
    versions = definitions.event_by_name.setdefault(event_type.name, {})
    taken = versions.get(event_type.version)
    if taken and not is_redefined(taken.cls, event_type.cls):
        raise DuplicateName(
            f"event name {event_type.name!r} version {event_type.version} is claimed by "
            f"{full_name(taken.cls)} and by {full_name(event_type.cls)}; "
            "give one of them another name or version"
        )
    versions[event_type.version] = event_type
    definitions.event_by_class[event_type.cls] = event_type


def add_aggregate(name: str, cls: type[AggregateRoot]) -> None:
    """Register an aggregate type; its name must be free."""
    check_wire_name("aggregate", name)
    taken = definitions.aggregate_by_name.get(name)
    if taken and not is_redefined(taken, cls):
        raise DuplicateName(
            f"aggregate name {name!r} is claimed by {full_name(taken)} and by {full_name(cls)}; "
            "give one of them another name"
        )
    definitions.aggregate_by_name[name] = cls
    definitions.aggregate_by_class[cls] = name


def event_type_of(cls: type[DomainEvent]) -> EventType:
    """Return the wire identity of an event class."""
    try:
        return definitions.event_by_class[cls]
    except KeyError:
        if issubclass(cls, type):
            raise UnknownEventType(
                "a class was given where an event is expected; make an event of it, with its fields: AccountCreated(…)"
            ) from None
        raise UnknownEventType(
            f"{full_name(cls)} is no registered event; derive it from DomainEvent and put @event on it"
        ) from None


def aggregate_type_of(cls: type[AggregateRoot]) -> str:
    """Return the wire name of an aggregate class."""
    try:
        return definitions.aggregate_by_class[cls]
    except KeyError:
        raise DefinitionError(f"{full_name(cls)} is no registered aggregate; put @aggregate on it") from None


def newest_event_type(name: str) -> EventType:
    """Return the newest version known here of the event with this wire name."""
    versions = definitions.event_by_name.get(name)
    if not versions:
        raise UnknownEventType(
            f"no event named {name!r} is defined in this process; import the module that defines it"
        )
    return versions[max(versions)]


def sealed_fields_of(name: str, version: int) -> tuple[SealedField, ...]:
    """Return which fields are sealed of an event in this version, else in the newest; none if none is known here."""
    versions = definitions.event_by_name.get(name)
    if not versions:
        return ()
    return (versions.get(version) or versions[max(versions)]).sealed


def event_types() -> list[EventType]:
    """Return every event type defined here, by name and version."""
    return [
        versions[number]
        for _, versions in sorted(definitions.event_by_name.items())
        for number in sorted(versions)
    ]
