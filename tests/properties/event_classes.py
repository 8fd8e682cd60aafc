"""Event classes that nobody has written: fields of any type, and constructors that do more than to fill them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import new_class
from typing import Annotated, Any, Literal, NewType, TypeVar
from uuid import UUID

import attrs
from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from outbox_kernel.kernel import DomainEvent, event, serialize_event
from outbox_kernel.kernel.errors import DefinitionError, KernelError
from outbox_kernel.kernel.wire.checks import check_round_trips
from outbox_kernel.kernel.wire.records import record_fields
from tests.properties.catalogue import (
    LAYOUTS,
    AccountId,
    Colour,
    Email,
    Level,
    Nickname,
    Person,
    PersonId,
    Right,
    Slotted,
    Status,
    Step,
    Unit,
)
from tests.properties.wire_values import events, values

T = TypeVar("T")

Text = NewType("Text", str)

_SCALARS = [
    str,
    int,
    float,
    bool,
    UUID,
    datetime,
    date,
    Decimal,
    timedelta,
    bytes,
    Text,
    Annotated[int, "any"],
]
_CHOICES = [Colour, Level, Status, Unit, Right, Literal["a", "b"], Literal[1, 2], Literal["a", 1, True]]
_CLASSES = [Email, AccountId, Nickname, Slotted, Step, Person, PersonId]
_LEAVES: SearchStrategy[Any] = st.sampled_from([*_SCALARS, *_CHOICES, *_CLASSES, Any])
_KEYS = st.sampled_from([str, int, UUID, Text, Colour, Email])

# As fields may be called, in two words and of what a struct or a dict has itself.
_NAMES = ("note", "sent_to", "größe", "keys", "self_", "get", "copy", "value", "got", "cls")
_numbers = itertools.count()


class Refused(ValueError):
    """What a validator raises."""


def _refuse(value: object) -> None:
    if value in ("a", 1, "", 0):
        raise Refused("that one not")


def _turned(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


class WithHook:
    """Makes a class whose constructor runs code of its author's."""

    def __attrs_post_init__(self) -> None:
        self._check()

    def __post_init__(self) -> None:
        self._check()

    def _check(self) -> None:
        for field in record_fields(type(self)):
            _refuse(getattr(self, field.name))


def _types(inner: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda each: each if each is Any else each | None),
        *(st.builds(_of, st.just(origin), inner) for origin in (list, set, frozenset)),
        st.builds(_of, st.just(tuple), inner, st.just(...)),
        st.builds(_of, st.just(tuple), inner, inner),
        st.builds(_of, st.just(dict), _KEYS, inner),
        _records(inner),
    )


def _of(origin: Any, *arguments: Any) -> Any:
    return origin[arguments]


def _is_restored(declared: Any) -> bool:
    """Whether a field of an event may be of this type."""
    try:
        check_round_trips(declared, "a field")
    except DefinitionError:
        return False
    return True


@st.composite
def _fields(
    draw: st.DrawFn, types: SearchStrategy[Any], *, plain: bool
) -> dict[str, tuple[Any, dict[str, Any]]]:
    names = draw(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=4, unique=True))
    return {
        name: (declared := draw(types.filter(_is_restored)), draw(_options(declared, plain=plain)))
        for name in names
    }


@st.composite
def _options(draw: st.DrawFn, declared: Any, *, plain: bool) -> dict[str, Any]:
    """What `attrs.field` is told; `plain`: as far as it concerns dataclasses as well."""
    options: dict[str, Any] = {"kw_only": draw(st.booleans())}
    if draw(st.integers(0, 3)) == 0:
        default = _or_reject(lambda: draw(values(declared)))
        options |= {"kw_only": True, ("default_factory" if plain else "factory"): lambda: default}
    if not plain and draw(st.integers(0, 5)) == 0:
        options["validator"] = lambda _, __, value: _refuse(value)
    if not plain and draw(st.integers(0, 5)) == 0:
        options["converter"] = _turned
    return options


@st.composite
def _records(draw: st.DrawFn, types: SearchStrategy[Any]) -> type[Any]:
    plain = draw(st.booleans())
    fields = draw(_fields(types, plain=plain))
    bases = (WithHook,) if draw(st.integers(0, 3)) == 0 else ()
    field: Any = dataclasses.field if plain else attrs.field
    body = _body({name: (declared, field(**options)) for name, (declared, options) in fields.items()})
    cls = new_class(f"Record{next(_numbers)}", bases, exec_body=lambda space: space.update(body))
    frozen, slots = draw(st.booleans()), draw(st.booleans())
    if plain:
        return dataclasses.dataclass(frozen=frozen, slots=slots, eq=True)(cls)
    return attrs.define(cls, frozen=frozen, slots=slots)


def _body(fields: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    annotations = {name: declared for name, (declared, _) in fields.items()}
    return {
        **{name: field for name, (_, field) in fields.items()},
        "__annotations__": annotations,
        "__module__": __name__,
    }


@st.composite
def stored_events(draw: st.DrawFn) -> tuple[type[DomainEvent], str]:
    """An event class and the payload of one of its events; to be used among definitions that are forgotten."""
    fields = draw(_fields(st.recursive(_LEAVES, _types, max_leaves=4), plain=False))
    bases = (WithHook, DomainEvent) if draw(st.integers(0, 5)) == 0 else (DomainEvent,)
    body = _body({name: (declared, attrs.field(**options)) for name, (declared, options) in fields.items()})
    cls = new_class(f"Event{next(_numbers)}", bases, exec_body=lambda space: space.update(body))
    define = event(layout=draw(st.sampled_from(LAYOUTS)))
    defined: type[DomainEvent] = _or_reject(lambda: define(cls))
    return defined, _or_reject(lambda: serialize_event(draw(events(defined))))


def _or_reject(make: Callable[[], T]) -> T:
    """Not every type can be registered, nor does each class take every value."""
    try:
        return make()
    except (KernelError, ValueError):
        return reject()
