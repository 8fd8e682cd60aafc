"""Questions to ask of a declared type."""

from __future__ import annotations

import sys
import types
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NewType,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable


def fields_of(cls: type[Any]) -> tuple[attrs.Attribute[Any], ...]:
    """Return the fields of an attrs class, also where the type checker cannot see that it is one."""
    fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(cls)
    return fields


def is_inherited(field: attrs.Attribute[Any]) -> bool:
    """Tell whether a base of its class has declared the field."""
    return bool(field.inherited)  # type: ignore[attr-defined]  # documented, and left out of the stubs


def is_subclass(candidate: object, base: type) -> bool:
    """Tell whether the candidate is a class at all, and derived from `base`."""
    return isinstance(candidate, type) and issubclass(candidate, base)


def is_optional(declared: object) -> bool:
    """Tell whether the type admits None."""
    return is_union(declared) and type(None) in get_args(declared)


# What pydantic calls a str and a datetime of which it asks more.
_RENAMED: dict[tuple[str | None, str | None], type[Any]] = {
    ("pydantic.networks", "EmailStr"): str,
    ("pydantic.types", "AwareDatetime"): datetime,
}


def is_renamed(declared: object) -> bool:
    """Tell whether a type is only a library's name for another one."""
    return isinstance(declared, type) and (declared.__module__, declared.__qualname__) in _RENAMED


def unwrapped(declared: Any) -> Any:
    """See through NewType, Annotated and a library's names."""
    while True:
        if isinstance(declared, NewType):
            declared = declared.__supertype__
        elif is_renamed(declared):
            return _RENAMED[declared.__module__, declared.__qualname__]
        elif get_origin(declared) is Annotated:
            declared = get_args(declared)[0]
        else:
            return declared


def is_union(declared: object) -> bool:
    """Tell whether the type is a union, Optional included."""
    return get_origin(declared) in (Union, types.UnionType)


def resolved(annotation: Any, module: str) -> Any:
    """Return the type that an annotation written in a module stands for, or None if that cannot be told."""
    try:
        written = types.SimpleNamespace(__annotations__={"type": annotation})
        return get_type_hints(written, vars(sys.modules[module]), include_extras=True)["type"]
    except Exception:  # noqa: BLE001 - it evaluates what somebody wrote, which may raise anything
        return None


def admits(declared: Any, is_meant: Callable[[type[Any]], bool]) -> bool:
    """Tell whether a type, or a member of a union, is one that is meant; what cannot be told is."""
    declared = unwrapped(declared)
    if is_union(declared):
        return any(admits(member, is_meant) for member in get_args(declared))
    known = (
        isinstance(declared, type) and declared is not Any and not getattr(declared, "_is_protocol", False)
    )
    return not known or is_meant(declared)
