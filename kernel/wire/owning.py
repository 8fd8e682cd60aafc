"""An event's own copy of what could be changed in it, so that what happened stays as it was told (K1).

A moment in a time zone takes the offset that it has there: in an hour that a zone repeats or skips it would
equal no other moment (PEP 495), and so none that comes back (K8).
"""

from __future__ import annotations

import copy
from datetime import datetime, timezone
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import attrs

from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.errors import UnserializableEvent
from outbox_kernel.kernel.wire.free import is_free, own_free
from outbox_kernel.kernel.wire.records import (
    MASK,
    RecordField,
    is_frozen,
    is_record,
    record_fields,
    resolve_record,
    shows_secrets,
)
from outbox_kernel.kernel.wire.types import is_union, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    Copier = Callable[[Any], Any]

_MUTABLE = (list, set, dict)
# In a field's metadata: it sees to its value itself, or has inherited a copier.
TAKEN = "kernel.taken"
# The same: nothing but our copier sees to its value.
_COPIED = "kernel.copied"


def with_own_copies(cls: type[Any], fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """Let each field of an event take a copy of what could be changed from outside, and fix what zones could."""
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError:
        return fields  # registration refuses the class, with a sentence
    declared = [hints.get(field.name, field.type) for field in fields]
    owning = [_with_own_copy(*each) for each in zip(fields, declared, strict=True)]
    return [_with_mask(*each) for each in zip(owning, declared, strict=True)]


def _with_mask(field: attrs.Attribute[Any], declared: Any) -> attrs.Attribute[Any]:
    return field.evolve(repr=lambda _: MASK) if field.repr is True and shows_secrets(declared) else field


def _with_own_copy(field: attrs.Attribute[Any], declared: Any) -> attrs.Attribute[Any]:
    copier = copier_of(declared)
    if copier is None or TAKEN in field.metadata:
        return field

    def copied(value: Any, event: Any, field: attrs.Attribute[Any]) -> Any:
        try:
            return copier(value)
        except RecursionError as error:
            name = catalogue.event_type_of(type(event)).name
            raise UnserializableEvent(name, field.name, "is nested too deeply; flatten it") from error

    # What attrs shows as the type of the constructor's parameter.
    copied.__annotations__ = {"value": declared, "return": declared}
    last: Any = attrs.Converter(copied, takes_self=True, takes_field=True)
    converter = last if field.converter is None else attrs.converters.pipe(field.converter, last)
    metadata = {**field.metadata, TAKEN: True, _COPIED: field.converter is None}
    return field.evolve(converter=converter, metadata=metadata)


def is_only_copied(field: attrs.Attribute[Any]) -> bool:
    """Tell whether the constructor of an event does nothing to a value of this field but copy it, if that."""
    return field.converter is None or bool(field.metadata.get(_COPIED))


def copier_of(declared: Any) -> Copier | None:
    """Return the function that takes a value of this type over, as deep as it can change, None if it cannot.

    What is of another type than the declared one is left to those who refuse it.
    """
    declared = unwrapped(declared)
    if declared is datetime:
        return _with_fixed_offset
    if is_free(declared):
        return own_free
    if not _can_change(declared):
        return None
    if is_union(declared):
        # Of one type and None, or registration refuses it.
        return next(filter(None, map(copier_of, get_args(declared))))
    if is_record(declared):
        return lambda value: _copied_object(declared, value)
    return _container_copier(get_origin(declared), get_args(declared))


def is_fixed(cls: type[Any]) -> bool:
    """Tell whether nothing in a restored event of this class can be changed, so that many may have the same one."""
    return not _can_change(cls, besides=())


def _can_change(declared: Any, inside: tuple[Any, ...] = (), besides: tuple[Any, ...] = (datetime,)) -> bool:
    declared = unwrapped(declared)
    if is_record(declared):
        return declared not in inside and (
            not is_frozen(declared)
            or any(
                _can_change(field.type, (*inside, declared), besides) for field in _resolved_fields(declared)
            )
        )
    return (
        declared in besides
        or is_free(declared)
        or get_origin(declared) in _MUTABLE
        or any(_can_change(argument, inside, besides) for argument in get_args(declared))
    )


def _resolved_fields(cls: type[Any]) -> tuple[RecordField, ...]:
    try:
        resolve_record(cls)
    except NameError:
        return ()  # registration refuses it
    return record_fields(cls)


def _copied_object(cls: type[Any], value: Any) -> Any:
    if type(value) is not cls:
        return value
    changed = {}
    for name, copied in _field_copiers(cls).items():  # type: ignore[arg-type]  # mypy denies that a class can be hashed
        if hasattr(value, name):
            held = getattr(value, name)
            own = copied(held)
            if own is not held:
                changed[name] = own
    if not changed and is_frozen(cls):
        return value
    twin = copy.copy(value)
    for name, own in changed.items():
        object.__setattr__(twin, name, own)
    return twin


def _with_fixed_offset(value: Any) -> Any:
    if not isinstance(value, datetime) or isinstance(value.tzinfo, timezone | NoneType):
        return value
    offset = value.utcoffset()
    return value if offset is None else value.replace(tzinfo=timezone(offset), fold=0)


@cache
def _field_copiers(cls: type[Any]) -> dict[str, Copier]:
    # Asked for when there is something to copy: a class may contain itself.
    copiers = {field.name: copier_of(field.type) for field in _resolved_fields(cls)}
    return {name: copied for name, copied in copiers.items() if copied is not None}


def _container_copier(origin: Any, arguments: tuple[Any, ...]) -> Copier:
    members = [copier_of(argument) for argument in arguments if argument is not Ellipsis]
    if origin is dict:
        return _dict_copier(*members[1:])  # a key is hashed, and does not change
    if origin is tuple and Ellipsis not in arguments:
        return _fixed_tuple_copier(members)
    return _uniform_copier(origin, *members)


def _uniform_copier(origin: Any, copied: Copier | None = None) -> Copier:
    def copy_container(value: Any) -> Any:
        if not isinstance(value, origin):
            return value
        return origin(value if copied is None else [copied(member) for member in value])

    return copy_container


def _dict_copier(copied: Copier | None = None) -> Copier:
    def copy_dict(value: Any) -> Any:
        if copied is None or not isinstance(value, dict):
            return dict(value) if isinstance(value, dict) else value
        return {key: copied(member) for key, member in value.items()}

    return copy_dict


def _fixed_tuple_copier(copiers: list[Copier | None]) -> Copier:
    def copy_tuple(value: Any) -> Any:
        if not isinstance(value, tuple) or len(value) != len(copiers):
            return value
        return tuple(
            [copied(member) if copied else member for copied, member in zip(copiers, value, strict=True)]
        )

    return copy_tuple
