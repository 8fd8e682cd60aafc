"""What identifies an aggregate: a UUID, an int, a str, or a value object of one (K2, C10)."""

from __future__ import annotations

import inspect
import re
from functools import cache
from typing import Any, Final
from uuid import UUID, uuid5

import attrs

from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.limits import KEY_CHARACTERS_MAX
from outbox_kernel.kernel.wire.records import is_value_object, value_field
from outbox_kernel.kernel.wire.types import admits, fields_of, is_optional, resolved

KEY_NAMESPACE: Final = UUID("b5c9cefb-cf37-521d-aac5-3d6089c46528")
"""The namespace of the UUIDs derived from keys; it never changes, since other systems compute them too."""

Kinds = frozenset[type]
KEY_KINDS: Final[Kinds] = frozenset({UUID, int, str})

_CANONICAL_CHARACTERS = 36
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")


@attrs.frozen
class KeyRule:
    """What a class says of its ids: which kinds they are of, and whether one may come after the first event."""

    kinds: Kinds = KEY_KINDS
    may_come_later: bool = False


def bare_value(identity: object) -> object:
    """Return what an id holds, if it is a value object of one field, however deep; else the id itself."""
    while not isinstance(identity, UUID | int | str):
        name = _value_name(type(identity))  # type: ignore[arg-type]  # mypy denies that a class can be hashed
        if name is None:
            break
        identity = getattr(identity, name)
    return identity


def stream_key(identity: object, kinds: Kinds = KEY_KINDS) -> tuple[UUID, str | None] | None:
    """Return the UUID of an id, and the id as written where that is no UUID; None for what identifies nothing.

    A text that is a UUID's own canonical text means that UUID.
    """
    value = identity if isinstance(identity, UUID) else bare_value(identity)
    if isinstance(value, UUID):
        return (value, None) if UUID in kinds else None
    if isinstance(value, str):
        # As a str even where the class of it writes itself in another way, as members of an Enum do.
        return _of_text(str.__str__(value), kinds)
    if isinstance(value, int) and not isinstance(value, bool) and int in kinds:
        key = int.__repr__(value)
        return uuid5(KEY_NAMESPACE, key), key
    return None


def uuid_of(identity: object) -> UUID | None:
    """Return the UUID by which the outbox knows an id; None for what identifies nothing."""
    found = stream_key(identity)
    return None if found is None else found[0]


def _of_text(key: str, kinds: Kinds) -> tuple[UUID, str | None] | None:
    if len(key) == _CANONICAL_CHARACTERS and (uuid := _canonical(key)) is not None:
        return uuid, None
    if str not in kinds and not (int in kinds and _INTEGER.fullmatch(key)):
        return None
    if not 0 < len(key) <= KEY_CHARACTERS_MAX or not _is_storable(key):
        return None
    return uuid5(KEY_NAMESPACE, key), key


def _canonical(text: str) -> UUID | None:
    try:
        uuid = UUID(text)
    except ValueError:
        return None
    return uuid if str(uuid) == text else None


def _is_storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


@cache
def _value_name(cls: type[Any]) -> str | None:
    return value_field(cls).name if is_value_object(cls) else None


def check_identity(cls: type[Any]) -> KeyRule:
    """Raise a DefinitionError unless an aggregate class declares an id that can identify it; return its rule."""
    written = {field.name: field.type for field in fields_of(cls)}
    if "id" not in written:
        raise DefinitionError(
            f"aggregate {cls.__name__} declares no id; add the field `id: UUID`, an int, a str, "
            "or a value object of one"
        )
    declared = resolved(written["id"], _module_of_id(cls))
    kinds = frozenset(kind for kind in KEY_KINDS if _admits(declared, kind))
    if not kinds:
        # Shown with its module, since there are other UUIDs than the standard library's.
        raise DefinitionError(
            f"aggregate {cls.__name__} declares an id of type {inspect.formatannotation(declared)}, "
            "which cannot identify it; make it a uuid.UUID, an int, a str, or a value object of one "
            "(a class of one field)"
        )
    # An int that may be missing is what a database counts; a UUID is made by whoever makes the aggregate.
    return KeyRule(kinds, int in kinds and is_optional(declared))


def _admits(declared: Any, kind: type) -> bool:
    return admits(declared, lambda meant: _identifies(meant, kind))


def _identifies(declared: type[Any], kind: type) -> bool:
    if declared is bool:
        return False
    if is_value_object(declared):
        return _admits(resolved(value_field(declared).type, declared.__module__), kind)
    return issubclass(declared, kind) or issubclass(kind, declared)


def _module_of_id(cls: type[Any]) -> str:
    # A base in another module may have written it, and means what its own module means by it.
    return next((base for base in cls.__mro__ if "id" in inspect.get_annotations(base)), cls).__module__
