"""Pydantic models, where an application has them: nothing here imports pydantic (K8).

A model is written by the types of its fields, as every other class is, and restored by its own validation. What that
would not restore as it was is refused before it is written.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.wire.limits import PYDANTIC_VERSION_MIN
from outbox_kernel.kernel.wire.scalars import refusal, str_out
from outbox_kernel.kernel.wire.types import is_subclass

if TYPE_CHECKING:
    from collections.abc import Callable

# What stands beside a field's type in pydantic, and makes its validation change even what it has made itself.
_DECODING = frozenset({"EncodedBytes", "EncodedStr", "Json"})


def is_model(cls: object) -> TypeGuard[type[Any]]:
    """Tell whether `cls` is a model of pydantic 2; whoever has one has imported pydantic."""
    main = sys.modules.get("pydantic.main")
    return main is not None and is_subclass(cls, main.BaseModel) and hasattr(cls, "model_validate")


def is_root_model(cls: object) -> bool:
    """Tell whether `cls` is a model of one value without a name."""
    return is_model(cls) and bool(cls.__pydantic_root_model__)


def check_model(cls: type[Any], where: str) -> None:
    """Raise a DefinitionError that names `where` if a model holds what its fields do not tell."""
    installed: str = sys.modules["pydantic"].VERSION
    if tuple(int(part) for part in installed.split(".")[:2]) < PYDANTIC_VERSION_MIN:
        raise DefinitionError(
            f"{where}: pydantic {installed} is installed, and models travel with 2.11 or newer; update it"
        )
    if cls.model_config.get("extra") == "allow":
        raise DefinitionError(
            f"{where}: {cls.__name__} allows extra fields, whose types nobody knows; declare them, or a "
            "`dict[str, Any]` for free JSON"
        )
    if cls.model_config.get("use_enum_values"):
        raise DefinitionError(
            f"{where}: {cls.__name__} holds values where its fields declare an Enum; leave use_enum_values out"
        )
    for name, field in cls.model_fields.items():
        for known in map(_name_of, field.metadata):
            if known in _DECODING:
                raise DefinitionError(
                    f"{where}: {cls.__name__}.{name} is decoded by pydantic ({known}) each time it is validated, so it "
                    "would not come back equal; declare what it holds, and decode it where it comes from"
                )
    for name in cls.__private_attributes__:
        raise DefinitionError(
            f"{where}: {cls.__name__}.{name} is compared but is no field, so it cannot be restored; "
            "make it a field, or a cached_property"
        )


def restored_model(cls: type[Any], held: Any) -> Any:
    """Make a model of the values of its fields, by their names, or raise ValueError with its first complaint."""
    try:
        return cls.model_validate(held, by_name=True, by_alias=False)
    except ValueError as error:  # every one of a validator comes as pydantic's own
        refused: Any = error
        first = refused.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, (cls.__name__, *first["loc"])))
        raise ValueError(f"{place}: {first['msg']}") from error


def _name_of(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else type(annotation).__name__


def is_url(declared: object) -> TypeGuard[type[Any]]:
    """Tell whether a type is one of pydantic's for addresses on the web."""
    networks = sys.modules.get("pydantic.networks")
    return networks is not None and is_subclass(declared, networks.AnyUrl)


def url_out(declared: type[Any]) -> Callable[[Any], str]:
    """Build the function that writes an address of this type."""

    def unstructure(value: Any) -> str:
        if type(value) is not declared:
            raise refusal(value, declared.__name__)
        return str_out(str(value))

    return unstructure


def url_in(value: Any, declared: type[Any]) -> Any:
    """Restore an address."""
    if not isinstance(value, str):
        raise refusal(value, declared.__name__)
    return declared(value)
