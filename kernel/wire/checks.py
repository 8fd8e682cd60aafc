"""Which field types survive the way to JSON and back unchanged (K8); anything else fails at registration."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, TypeVar, get_args, get_origin
from uuid import UUID

from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.wire.free import is_free
from outbox_kernel.kernel.wire.models import check_model, is_model, is_url
from outbox_kernel.kernel.wire.names import check_distinct, names_of
from outbox_kernel.kernel.wire.records import (
    RecordField,
    init_variables,
    is_record,
    is_value_object,
    record_fields,
    resolve_record,
    value_field,
)
from outbox_kernel.kernel.wire.types import is_optional, is_subclass, is_union, unwrapped

_SCALARS = (str, int, float, bool, UUID, datetime, date, timedelta, Decimal, bytes)
_KEYS = (str, int, UUID)


def check_round_trips(declared: Any, where: str, inside: tuple[Any, ...] = ()) -> None:
    """Raise a DefinitionError that names `where`, unless every value of the type comes back equal."""
    declared = unwrapped(declared)
    if declared in _SCALARS or is_free(declared) or is_url(declared) or declared in inside:
        return
    if is_subclass(declared, Enum):
        _check_enum(declared, where)
    elif is_record(declared):
        _check_record(declared, where, (*inside, declared))
    elif is_union(declared):
        _check_union(declared, where, inside)
    elif get_origin(declared) is Literal:
        _check_literal(declared, where)
    elif get_origin(declared) in (list, set, frozenset, tuple, dict):
        _check_container(declared, where, inside)
    elif is_record(get_origin(declared)):
        raise _generic(get_origin(declared), where)
    else:
        raise DefinitionError(f"{where}: {_remedy(declared)}")


def check_restorable(field: RecordField, where: str) -> None:
    """Raise a DefinitionError that names `where` if a field is compared and no constructor can restore it."""
    if field.is_compared and not field.is_argument:
        raise DefinitionError(
            f"{where} is compared but is no argument of the constructor, so it cannot be restored; "
            "make it an argument, or leave it out of the comparison"
        )


def _generic(declared: type[Any], where: str) -> DefinitionError:
    return DefinitionError(f"{where}: {declared.__name__} is generic; write a concrete class")


def _remedy(declared: Any) -> str:
    if isinstance(declared, TypeVar):
        return (
            f"the type {declared.__name__} is left open; declare the field with its type in a concrete class"
        )
    shown = "no annotation" if declared is None else _name(declared)
    return (
        f"{shown} does not survive JSON unchanged; use str, int, float, bool, UUID, datetime, date, timedelta, "
        "Decimal, bytes, an Enum, an attrs class, a dataclass, a pydantic model, Optional, Literal, a list, tuple, "
        "set, frozenset or dict of these, or Any for free JSON"
    )


def _check_enum(declared: type[Enum], where: str) -> None:
    for member in declared:
        if type(member.value) not in (str, int) or not _is_storable(member.value):
            raise DefinitionError(
                f"{where}: {declared.__name__}.{member.name} has the value {member.value!r}; "
                "an Enum on the wire needs str or int values, without NUL and lone surrogates"
            )


def _is_storable(value: object) -> bool:
    """Whether PostgreSQL can store it as text: no NUL, nothing that is no Unicode."""
    return not isinstance(value, str) or ("\0" not in value and _is_unicode(value))


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def resolve_annotations(cls: type[Any], where: str) -> None:
    """Turn the annotations of a record into types, or raise a DefinitionError that names `where`."""
    try:
        resolve_record(cls)
    except NameError as error:
        said = str(error).partition("\n")[0]
        raise DefinitionError(
            f"{where}: the annotation of a field cannot be resolved ({said}); "
            f"define that type above {cls.__name__} and import it at run time"
        ) from error


def _check_record(declared: type[Any], where: str, inside: tuple[Any, ...]) -> None:
    if getattr(declared, "__parameters__", ()):
        raise _generic(declared, where)
    if getattr(declared, "__eq__") is getattr(object, "__eq__"):  # noqa: B009 - mypy takes them for functions of two kinds
        raise DefinitionError(
            f"{where}: {declared.__name__} is compared by identity, so none that comes back could be equal; "
            "leave eq=False out"
        )
    resolve_annotations(declared, where)
    if is_model(declared):
        check_model(declared, where)
    for name in init_variables(declared):
        raise DefinitionError(
            f"{where}: {declared.__name__}.{name} is an InitVar, which is not kept, so nothing could restore it; "
            "make it a field"
        )
    # In either layout, since a class may serve events of both.
    check_distinct(names_of(declared, "camel").values(), f"{where}, {declared.__name__}")
    for field in record_fields(declared):
        check_restorable(field, f"{where}: {declared.__name__}.{field.name}")
        if field.is_argument:
            check_round_trips(field.type, f"{where}, {declared.__name__}.{field.name}", inside)


def _check_union(declared: Any, where: str, inside: tuple[Any, ...]) -> None:
    members = [member for member in get_args(declared) if member is not type(None)]
    if len(members) != 1:
        raise DefinitionError(
            f"{where}: a union of several types is ambiguous in JSON; name one, Optional of one, or Any for free JSON"
        )
    inner = unwrapped(members[0])
    check_round_trips(inner, where, inside)
    if is_value_object(inner) and _admits_none(_bare_type(inner)):
        raise DefinitionError(
            f"{where}: Optional of {inner.__name__}, whose own value is Optional, leaves None ambiguous; "
            "drop one"
        )


def _admits_none(declared: Any) -> bool:
    return is_optional(declared) or is_free(declared)


def _bare_type(cls: type[Any]) -> Any:
    declared = unwrapped(value_field(cls).type)
    return _bare_type(declared) if is_value_object(declared) else declared


def _check_literal(declared: Any, where: str) -> None:
    if not all(type(value) in (str, int, bool) and _is_storable(value) for value in get_args(declared)):
        raise DefinitionError(
            f"{where}: a Literal on the wire holds str, int or bool only, without NUL and lone surrogates"
        )


def _check_container(declared: Any, where: str, inside: tuple[Any, ...]) -> None:
    members = [member for member in get_args(declared) if member is not Ellipsis]
    if not members:
        raise DefinitionError(f"{where}: {_remedy(declared)}")
    for member in members:
        check_round_trips(member, where, inside)
    if get_origin(declared) is dict and not _is_key(unwrapped(members[0])):
        raise DefinitionError(
            f"{where}: a dict on the wire has str, int, UUID or Enum keys (the Enum's values of one type), "
            "or value objects of these"
        )
    if get_origin(declared) in (set, frozenset, dict) and not _is_hashable(members[0]):
        raise DefinitionError(
            f"{where}: {_name(members[0])} cannot be hashed, so no set or dict holds it; use a frozen class, "
            "a tuple or a frozenset of such, or a list"
        )


def _is_key(declared: Any) -> bool:
    if is_subclass(declared, Enum):
        return len({type(member.value) for member in declared}) == 1
    return declared in _KEYS or (is_value_object(declared) and _is_key(_bare_type(declared)))


def _is_hashable(declared: Any, inside: tuple[Any, ...] = ()) -> bool:
    declared = unwrapped(declared)
    if is_union(declared) or get_origin(declared) is tuple:
        return all(_is_hashable(member, inside) for member in get_args(declared))
    if is_record(declared) and declared not in inside:
        return declared.__hash__ is not None and all(
            _is_hashable(field.type, (*inside, declared))
            for field in record_fields(declared)
            if field.is_hashed
        )
    return get_origin(declared) not in (list, set, dict) and not is_free(declared)


def _name(declared: Any) -> str:
    return getattr(declared, "__name__", None) or repr(declared)
