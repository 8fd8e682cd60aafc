"""Which field types survive the way to JSON and back unchanged (K8); anything else fails at registration."""

from __future__ import annotations

import types
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType, TypeGuard, Union, get_args, get_origin
from uuid import UUID

import attrs

from kernel.errors import DefinitionError

SCALARS = (str, int, float, bool, UUID, datetime, date, Decimal)
_KEYS = (str, int, UUID)


def is_value_object(cls: object) -> TypeGuard[type[Any]]:
    """Tell whether `cls` is a value object in the wire's sense: an attrs class of exactly one field."""
    return isinstance(cls, type) and attrs.has(cls) and len(_init_fields(cls)) == 1


def value_field(cls: type[Any]) -> attrs.Attribute[Any]:
    """Return the one field of a value object."""
    return _init_fields(cls)[0]


def is_optional(declared: object) -> bool:
    """Tell whether the type admits None."""
    return _is_union(declared) and type(None) in get_args(declared)


def unwrapped(declared: Any) -> Any:
    """See through NewType and Annotated."""
    while True:
        if isinstance(declared, NewType):
            declared = declared.__supertype__
        elif get_origin(declared) is Annotated:
            declared = get_args(declared)[0]
        else:
            return declared


def check_round_trips(declared: Any, where: str, inside: tuple[Any, ...] = ()) -> None:
    """Raise a DefinitionError that names `where`, unless every value of the type comes back equal."""
    declared = unwrapped(declared)
    if declared in SCALARS or declared in inside:
        return
    if isinstance(declared, type) and issubclass(declared, Enum):
        _check_enum(declared, where)
    elif isinstance(declared, type) and attrs.has(declared):
        _check_attrs_class(declared, where, (*inside, declared))
    elif _is_union(declared):
        _check_union(declared, where, inside)
    elif get_origin(declared) is Literal:
        _check_literal(declared, where)
    elif get_origin(declared) in (list, set, frozenset, tuple, dict):
        _check_container(declared, where, inside)
    else:
        raise DefinitionError(f"{where}: {_remedy(declared)}")


def _remedy(declared: Any) -> str:
    shown = "no annotation" if declared is None else getattr(declared, "__name__", None) or repr(declared)
    return (
        f"{shown} does not survive JSON unchanged; use str, int, float, bool, UUID, datetime, date, Decimal, "
        "an Enum, an attrs class, Optional, Literal, or list, tuple, set, frozenset or dict of these"
    )


def _is_union(declared: object) -> bool:
    return get_origin(declared) in (Union, types.UnionType)


def _init_fields(cls: type[Any]) -> list[attrs.Attribute[Any]]:
    return [field for field in attrs.fields(cls) if field.init]


def _check_enum(declared: type[Enum], where: str) -> None:
    for member in declared:
        if type(member.value) not in (str, int):
            raise DefinitionError(
                f"{where}: {declared.__name__}.{member.name} has the value {member.value!r}; "
                "an Enum on the wire needs str or int values"
            )


def _check_attrs_class(declared: type[Any], where: str, inside: tuple[Any, ...]) -> None:
    if getattr(declared, "__parameters__", ()):
        raise DefinitionError(f"{where}: {declared.__name__} is generic; write a concrete class")
    attrs.resolve_types(declared)
    for field in attrs.fields(declared):
        if not field.init and field.eq:
            raise DefinitionError(
                f"{where}: {declared.__name__}.{field.name} is compared but is no argument of the constructor, "
                "so it cannot be restored; make it an argument, or eq=False"
            )
        if field.init:
            check_round_trips(field.type, f"{where}, {declared.__name__}.{field.name}", inside)


def _check_union(declared: Any, where: str, inside: tuple[Any, ...]) -> None:
    members = [member for member in get_args(declared) if member is not type(None)]
    if len(members) != 1:
        raise DefinitionError(
            f"{where}: a union of several types is ambiguous in JSON; name one, or Optional of one"
        )
    inner = unwrapped(members[0])
    if is_value_object(inner) and is_optional(_bare_type(inner)):
        raise DefinitionError(
            f"{where}: Optional of {inner.__name__}, whose own value is Optional, leaves None ambiguous; drop one"
        )
    check_round_trips(inner, where, inside)


def _bare_type(cls: type[Any]) -> Any:
    attrs.resolve_types(cls)
    declared = unwrapped(value_field(cls).type)
    return _bare_type(declared) if is_value_object(declared) else declared


def _check_literal(declared: Any, where: str) -> None:
    if not all(type(value) in (str, int, bool) for value in get_args(declared)):
        raise DefinitionError(f"{where}: a Literal on the wire holds str, int or bool only")


def _check_container(declared: Any, where: str, inside: tuple[Any, ...]) -> None:
    members = [member for member in get_args(declared) if member is not Ellipsis]
    if not members:
        raise DefinitionError(f"{where}: {_remedy(declared)}")
    if get_origin(declared) is dict and not _is_key(unwrapped(members[0])):
        raise DefinitionError(
            f"{where}: a dict on the wire has str, int, UUID or Enum keys, or value objects of these"
        )
    for member in members:
        check_round_trips(member, where, inside)


def _is_key(declared: Any) -> bool:
    if declared in _KEYS or (isinstance(declared, type) and issubclass(declared, Enum)):
        return True
    return is_value_object(declared) and _is_key(_bare_type(declared))
