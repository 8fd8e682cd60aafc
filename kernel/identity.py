"""What identifies an aggregate: a UUID, or a value object of one (K2)."""

from __future__ import annotations

import inspect
from typing import Any
from uuid import UUID

from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.wire.types import admits, fields_of, is_value_object, resolved, value_field


def uuid_of(identity: object) -> UUID | None:
    """Return the UUID that an id is, or that a value object of one field holds; else None."""
    if isinstance(identity, UUID):
        return identity
    if identity is not None and is_value_object(type(identity)):
        return uuid_of(getattr(identity, value_field(type(identity)).name))
    return None


def check_identity(cls: type[Any]) -> None:
    """Raise a DefinitionError unless an aggregate class declares an id that can identify it."""
    written = {field.name: field.type for field in fields_of(cls)}
    if "id" not in written:
        raise DefinitionError(
            f"aggregate {cls.__name__} declares no id; add the field `id: UUID`, or a value object of one"
        )
    declared = resolved(written["id"], _module_of_id(cls))
    if not admits(declared, _identifies):
        # Shown with its module, since there are other UUIDs than the standard library's.
        raise DefinitionError(
            f"aggregate {cls.__name__} declares an id of type {inspect.formatannotation(declared)}, "
            "which cannot identify it; make it a uuid.UUID, or a value object of one (an attrs class of one field)"
        )


def _identifies(declared: type[Any]) -> bool:
    if is_value_object(declared):
        return admits(resolved(value_field(declared).type, declared.__module__), _identifies)
    return issubclass(declared, UUID) or issubclass(UUID, declared)


def _module_of_id(cls: type[Any]) -> str:
    # A base in another module may have written it, and means what its own module means by it.
    return next((base for base in cls.__mro__ if "id" in inspect.get_annotations(base)), cls).__module__
