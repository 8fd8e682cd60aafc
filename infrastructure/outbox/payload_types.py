"""How values of a type come out of a payload: what msgspec reads, and what the kernel's own functions make of it.

msgspec is left to convert what it converts exactly as the kernel does, JSON's own types and UUIDs. Of moments and
numbers it takes more than Python does, or rounds what Python cuts off: those it reads as text.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, Flag
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin
from uuid import UUID

from msgspec import Raw

from outbox_kernel.infrastructure.outbox.payload_classes import (
    Part,
    Slot,
    construction,
    struct_of,
    takes_by_keyword,
)
from outbox_kernel.kernel.serialization import decoded
from outbox_kernel.kernel.wire.converter import converter_for
from outbox_kernel.kernel.wire.models import is_model
from outbox_kernel.kernel.wire.names import names_of
from outbox_kernel.kernel.wire.records import (
    argument_fields,
    is_record,
    is_value_object,
    maker_of,
    value_field,
)
from outbox_kernel.kernel.wire.types import is_optional, is_subclass, is_union, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_AS_THEY_ARE = (str, int, float, bool, UUID)
_OF_TEXT = (datetime, date, Decimal, timedelta, bytes)


class _Unknown(Exception):
    """A type of which only the kernel knows how it is restored."""


def part_of(declared: Any, layout: str) -> Part:
    """Return how values of a type come out of a payload."""
    try:
        return _part(declared, layout, ())
    except _Unknown:
        return _left_to_kernel(declared, layout)


def _left_to_kernel(declared: Any, layout: str) -> Part:
    hook = converter_for(layout).get_structure_hook(declared)
    return Part(Raw, lambda raw: hook(decoded(str(raw, "utf-8")), declared))


def _part(declared: Any, layout: str, inside: tuple[Any, ...]) -> Part:
    declared = unwrapped(declared)
    if declared in (*_AS_THEY_ARE, *_OF_TEXT):
        return _scalar(declared, layout)
    if is_subclass(declared, Enum) or get_origin(declared) is Literal:
        return _chosen(declared, layout)
    if is_union(declared):
        return _perhaps(declared, layout, inside)
    if is_record(declared):
        return _record(declared, layout, inside)
    return _container(declared, layout, inside)


def _scalar(declared: Any, layout: str) -> Part:
    if declared in _AS_THEY_ARE:
        return Part(declared)
    if declared is datetime:
        return Part(str, _moment)
    hook = converter_for(layout).get_structure_hook(declared)
    return Part(str, lambda text: hook(text, declared))


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    return moment


def _chosen(declared: Any, layout: str) -> Part:
    """Find a choice in what the kernel makes of each; what is not among them is the kernel's to judge."""
    if is_subclass(declared, Flag):  # whose members can be combined
        raise _Unknown
    is_enum = is_subclass(declared, Enum)
    values = [member.value for member in declared] if is_enum else get_args(declared)
    kinds = {type(value) for value in values}
    if kinds not in ({str}, {int}):
        raise _Unknown
    structure = converter_for(layout).structure
    choices = {value: structure(value, declared) for value in values}
    return Part(kinds.pop(), choices.__getitem__)


def _perhaps(declared: Any, layout: str, inside: tuple[Any, ...]) -> Part:
    members = [member for member in get_args(declared) if member is not type(None)]
    if len(members) != 1 or not is_optional(declared):
        raise _Unknown
    read, make = _part(members[0], layout, inside)
    if make is None:
        return Part(read | None)
    return Part(read | None, lambda got: None if got is None else make(got))


def _record(cls: type[Any], layout: str, inside: tuple[Any, ...]) -> Part:
    if is_model(cls) or cls in inside:
        raise _Unknown
    if is_value_object(cls):
        return _value_object(cls, layout, (*inside, cls))
    keys, fields = names_of(cls, layout), argument_fields(cls)
    if not takes_by_keyword(cls, [field.keyword for field in fields]):
        raise _Unknown
    slots = [
        Slot(
            f"f{number}",
            keys[field.name],
            field.name,
            field.keyword,
            _part(field.type, layout, (*inside, cls)),
            field.is_required,
        )
        for number, field in enumerate(fields)
    ]
    return Part(struct_of(slots), construction(cls, slots))


def _value_object(cls: type[Any], layout: str, inside: tuple[Any, ...]) -> Part:
    field, make = value_field(cls), maker_of(cls)
    bare = _part(field.type, layout, inside)
    if layout == "camel":
        slot = Slot("value", "value", field.name, field.keyword, bare, is_required=True)
        return Part(struct_of([slot]), construction(cls, [slot]))
    inner = bare.make
    return Part(bare.read, make if inner is None else lambda got: make(inner(got)))


def _container(declared: Any, layout: str, inside: tuple[Any, ...]) -> Part:
    origin, arguments = get_origin(declared), get_args(declared)
    if origin in (list, set, frozenset) or (origin is tuple and arguments[-1] is Ellipsis):
        return _uniform(origin, _part(arguments[0], layout, inside))
    if origin is tuple:
        return _fixed([_part(argument, layout, inside) for argument in arguments])
    if origin is dict and unwrapped(arguments[0]) is str:
        return _by_text(_part(arguments[1], layout, inside))
    raise _Unknown


def _uniform(origin: Callable[[Iterable[Any]], Any], member: Part) -> Part:
    read, make = list[member.read], member.make  # type: ignore[name-defined]  # made at run time
    if make is None:
        return Part(read, None if origin is list else origin)
    return Part(read, lambda got: origin([make(each) for each in got]))


def _fixed(members: list[Part]) -> Part:
    read: Any = tuple.__class_getitem__(tuple(member.read for member in members))
    makers = [member.make for member in members]
    if not any(makers):
        return Part(read)

    def make_all(got: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([make(each) if make else each for make, each in zip(makers, got, strict=True)])

    return Part(read, make_all)


def _by_text(member: Part) -> Part:
    read, make = dict[str, member.read], member.make  # type: ignore[name-defined]  # likewise
    if make is None:
        return Part(read)
    return Part(read, lambda got: {key: make(each) for key, each in got.items()})
