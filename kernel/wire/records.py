"""Classes of named fields: attrs classes, dataclasses and pydantic models, all seen in one way (K8)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, NewType, TypeGuard, get_args, get_origin, get_type_hints

import attrs

from outbox_kernel.kernel.wire.models import is_model, is_root_model, restored_model
from outbox_kernel.kernel.wire.scalars import Misfit
from outbox_kernel.kernel.wire.types import fields_of, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable

# What is shown of a secret.
MASK = "***"
# In a field's metadata: which field says whose it is, and its value once that one is forgotten (O6).
SUBJECT = "kernel.subject"
FORGOTTEN = "kernel.forgotten"


@attrs.frozen(eq=False)
class RecordField:
    """A field, whichever library has made it one."""

    name: str
    # What the constructor calls it.
    keyword: str
    type: Any
    is_required: bool
    is_argument: bool = True
    is_compared: bool = True
    is_hashed: bool = True
    # Not to be shown (K11); and if its type says so, the `repr` of its class does not know of it.
    is_sensitive: bool = False
    is_marked: bool = False
    # The field that says whose it is, if a store is to encrypt it with that one's key; and its value without that key.
    subject: str | None = None
    forgotten: Any = attrs.field(factory=lambda: attrs.NOTHING)


def is_record(cls: object) -> TypeGuard[type[Any]]:
    """Tell whether `cls` is a class of named fields."""
    return isinstance(cls, type) and (attrs.has(cls) or dataclasses.is_dataclass(cls) or is_model(cls))


def record_fields(cls: type[Any]) -> tuple[RecordField, ...]:
    """Return the fields of a record, with their types as far as they can be told."""
    if attrs.has(cls):
        return tuple(_of_attrs(field) for field in fields_of(cls))
    if is_model(cls):
        return tuple(_of_model(name, field) for name, field in cls.model_fields.items())
    try:
        hints = _hints(cls)
    except NameError:
        hints = {}
    return tuple(_of_dataclass(field, hints) for field in dataclasses.fields(cls))


def field_names(cls: type[Any]) -> list[str]:
    """Return the names of the fields of a record, whatever can be told of their types."""
    if attrs.has(cls):
        return [field.name for field in fields_of(cls)]
    return list(cls.model_fields) if is_model(cls) else [field.name for field in dataclasses.fields(cls)]


def argument_fields(cls: type[Any]) -> list[RecordField]:
    """Return the fields that are arguments of the constructor; only these travel."""
    return [field for field in record_fields(cls) if field.is_argument]


def resolve_record(cls: type[Any]) -> None:
    """Turn the annotations of a record into types, or raise NameError."""
    if attrs.has(cls):
        attrs.resolve_types(cls)
    elif is_model(cls):
        cls.model_rebuild()
    else:
        _hints(cls)


def is_frozen(cls: type[Any]) -> bool:
    """Tell whether no field of a record can be given another value."""
    if is_model(cls):
        return bool(cls.model_config.get("frozen"))
    if attrs.has(cls):
        # The one trace that frozen=True leaves in every version of attrs.
        return getattr(cls.__setattr__, "__name__", "") == "_frozen_setattrs"
    frozen: bool = cls.__dataclass_params__.frozen
    return frozen


def init_variables(cls: type[Any]) -> list[str]:
    """Return the arguments of a dataclass's constructor that it does not keep."""
    if attrs.has(cls) or not dataclasses.is_dataclass(cls):
        return []
    hints = _hints(cls)
    return [name for name in cls.__dataclass_fields__ if isinstance(hints.get(name), dataclasses.InitVar)]


def runs_code(cls: type[Any]) -> bool:
    """Tell whether making a record runs code of its author's, which may change or refuse what it is given.

    Of attrs classes, whose converters and hooks are as old as the class, that is taken on trust.
    """
    return not attrs.has(cls) and (
        is_model(cls) or hasattr(cls, "__post_init__") or hasattr(cls, "__pydantic_validator__")
    )


def check_restores(value: Any) -> None:
    """Raise ValueError unless its own class would make this record again as it is."""
    cls = type(value)
    held = {field.keyword: getattr(value, field.name) for field in argument_fields(cls)}
    try:
        restored = restored_record(cls, held)
    except Exception as error:
        raise ValueError(f"holds {cls.__name__} that its own class refuses: {error}") from error
    if restored != value:
        raise Misfit(
            f"holds {cls.__name__} that would not come back equal, since its class changes what it is given; "
            "let it leave alone what it has made itself"
        )


def restored_record(cls: type[Any], held: dict[str, Any]) -> Any:
    """Make a record of what its constructor takes."""
    if not is_model(cls):
        return cls(**held)
    return restored_model(cls, held["root"] if is_root_model(cls) else held)


def is_value_object(cls: object) -> TypeGuard[type[Any]]:
    """Tell whether `cls` is a value object in the wire's sense: an attrs class or dataclass of exactly one field.

    A pydantic model with a field is an object wherever it is written as JSON, so that only a RootModel is one.
    """
    if is_model(cls):
        return is_root_model(cls)
    return is_record(cls) and len(argument_fields(cls)) == 1


def value_field(cls: type[Any]) -> RecordField:
    """Return the one field of a value object."""
    return argument_fields(cls)[0]


def maker_of(cls: type[Any]) -> Callable[[Any], Any]:
    """Return the function that makes a value object of its value."""
    keyword = value_field(cls).keyword
    if is_model(cls):
        return lambda value: restored_record(cls, {keyword: value})
    return lambda value: cls(**{keyword: value})


def is_marked(declared: Any) -> bool:
    """Tell whether a type says itself that it is a secret: `Annotated[str, sensitive()]`."""
    return says(declared, "sensitive")


def says(declared: Any, key: str) -> bool:
    """Tell whether a type is annotated with metadata of ours that has this key."""
    while True:
        if isinstance(declared, NewType):
            declared = declared.__supertype__
        elif get_origin(declared) is Annotated:
            if any(_said(annotation, key) for annotation in get_args(declared)[1:]):
                return True
            declared = get_args(declared)[0]
        else:
            return False


def holds_secrets(declared: Any) -> bool:
    """Tell whether a type is a secret, or has one at any depth."""
    return _holds(declared, lambda field: field.is_sensitive)


def shows_secrets(declared: Any) -> bool:
    """Tell whether the `repr` of a value of this type would show a secret."""
    return _holds(declared, lambda field: field.is_marked)


def _holds(declared: Any, is_meant: Callable[[RecordField], bool], inside: tuple[Any, ...] = ()) -> bool:
    if is_marked(declared):
        return True
    declared = unwrapped(declared)
    if is_record(declared):
        return declared not in inside and any(
            is_meant(field) or _holds(field.type, is_meant, (*inside, declared))
            for field in record_fields(declared)
        )
    return any(_holds(argument, is_meant, inside) for argument in get_args(declared))


def _of_attrs(field: attrs.Attribute[Any]) -> RecordField:
    marked = is_marked(field.type)
    return RecordField(
        field.name,
        field.alias or field.name,
        field.type,
        field.default is attrs.NOTHING,
        field.init,
        bool(field.eq),
        bool(field.eq if field.hash is None else field.hash),
        marked or bool(field.metadata.get("sensitive")),
        marked,
        field.metadata.get(SUBJECT),
        field.metadata.get(FORGOTTEN, attrs.NOTHING),
    )


def _of_dataclass(field: dataclasses.Field[Any], hints: dict[str, Any]) -> RecordField:
    declared = hints.get(field.name, field.type)
    marked = is_marked(declared)
    return RecordField(
        field.name,
        field.name,
        declared,
        field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        field.init,
        field.compare,
        field.compare if field.hash is None else field.hash,
        marked,
        marked,
    )


def _of_model(name: str, field: Any) -> RecordField:
    marked = any(_said(each, "sensitive") for each in field.metadata) or is_marked(field.annotation)
    subjects = [each.metadata[SUBJECT] for each in field.metadata if _said(each, SUBJECT)]
    return RecordField(
        *(name, name, field.annotation, field.is_required()),
        is_sensitive=marked,
        is_marked=marked,
        subject=next(iter(subjects), None),
    )


def _said(annotation: Any, key: str) -> Any:
    metadata = getattr(annotation, "metadata", None)
    return metadata.get(key) if isinstance(metadata, Mapping) else None


def _hints(cls: type[Any]) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)
