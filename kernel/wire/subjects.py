"""Fields that are sealed: whose key a store encrypts them with, and how they read once that key is destroyed (O6).

The kernel only checks and remembers what a class declares. Its payloads are clear; what stores them seals the fields.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, get_args
from uuid import UUID

import attrs

from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.wire.limits import SUBJECT_CHARACTERS_MAX
from outbox_kernel.kernel.wire.names import event_names
from outbox_kernel.kernel.wire.records import (
    SUBJECT,
    RecordField,
    is_record,
    is_value_object,
    record_fields,
    says,
    value_field,
)
from outbox_kernel.kernel.wire.types import fields_of, is_optional, unwrapped

if TYPE_CHECKING:
    from collections.abc import Mapping

_KINDS = (UUID, int, str)


@attrs.frozen
class SealedField:
    """A field that is encrypted where it is stored."""

    name: str
    key: str
    """What it is called in the payload."""
    subject: str
    """What the field is called there whose value says whose it is."""
    forgotten: Any
    """What stands in its place, as the payload has it, once its subject is forgotten."""


def sealed_fields(cls: type[Any], layout: str, where: str) -> tuple[SealedField, ...]:
    """Return the fields of an event that are sealed, or raise a DefinitionError that names `where`."""
    fields = {field.name: field for field in record_fields(cls)}
    for field in fields.values():
        if seals_inside(field.type):
            raise DefinitionError(
                f"{where}, field {field.name!r}: a part of it asks for a subject, and only a field of the event itself "
                f"can; write `{field.name}: … = sensitive(subject=…)`"
            )
    keys = event_names(cls, layout)
    return tuple(
        SealedField(
            field.name,
            keys[field.name],
            keys[_subject_of(field, fields, where)],
            _forgotten(cls, field, layout, f"{where}, field {field.name!r}"),
        )
        for field in fields.values()
        if field.subject is not None
    )


def subject_in(payload: Mapping[str, Any], field: SealedField) -> str:
    """Return whose a field of a payload is, as text, or raise ValueError with what is wrong."""
    value = payload.get(field.subject)
    while isinstance(value, dict) and value.keys() == {"value"}:  # a value object in camel
        value = value["value"]
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"is kept for the subject in {field.subject!r}, which has none")  # noqa: TRY004 - the data's
    subject = str(value)
    if not 0 < len(subject) <= SUBJECT_CHARACTERS_MAX:
        raise ValueError(
            f"is kept for the subject in {field.subject!r}, which has {len(subject)} characters; give it one to "
            f"{SUBJECT_CHARACTERS_MAX}"
        )
    return subject


def seals_inside(declared: Any, inside: tuple[Any, ...] = ()) -> bool:
    """Tell whether a type, or a part of it at any depth, asks for a subject."""
    if says(declared, SUBJECT):
        return True
    declared = unwrapped(declared)
    if is_record(declared):
        return declared not in inside and any(
            field.subject is not None or seals_inside(field.type, (*inside, declared))
            for field in record_fields(declared)
        )
    return any(seals_inside(argument, inside) for argument in get_args(declared))


def _subject_of(field: RecordField, fields: Mapping[str, RecordField], where: str) -> str:
    where = f"{where}, field {field.name!r}"
    subject = fields.get(str(field.subject))
    if subject is None:
        raise DefinitionError(
            f"{where} is kept for the subject in {field.subject!r}, and the event has no such field; name one that "
            "says whose it is"
        )
    if subject.subject is not None:
        raise DefinitionError(
            f"{where} is kept for the subject in {subject.name!r}, which is kept for a subject itself and cannot be "
            "read without its key; name a field that is stored as it is"
        )
    if not _identifies(subject.type):
        raise DefinitionError(
            f"{where} is kept for the subject in {subject.name!r}, of type {inspect.formatannotation(subject.type)}, "
            "which names nobody; let it be a UUID, an int, a str, or a value object of one, and never None"
        )
    return subject.name


def _identifies(declared: Any) -> bool:
    declared = unwrapped(declared)
    if is_value_object(declared):
        return _identifies(value_field(declared).type)
    return declared in _KINDS


def _forgotten(cls: type[Any], field: RecordField, layout: str, where: str) -> Any:
    """Return what a field reads as once its subject is forgotten, as its payload has it."""
    value, is_given = field.forgotten, field.forgotten is not attrs.NOTHING
    if not is_given:
        if not is_optional(field.type) and unwrapped(field.type) is not str:
            raise DefinitionError(
                f"{where} has no value of its own for what is forgotten, since it is neither a str nor optional; "
                "give one: sensitive(subject=…, forgotten=…)"
            )
        value = None if is_optional(field.type) else ""
    try:
        _check_taken(cls, field.name, value)
        return _written(field.type, value, layout) if is_given else value
    except Exception as error:
        raise DefinitionError(
            f"{where} cannot read as {value!r} once it is forgotten, since it refuses that "
            f"({type(error).__name__}); give another value: sensitive(subject=…, forgotten=…)"
        ) from error


def _check_taken(cls: type[Any], name: str, value: Any) -> None:
    """Raise what the field's own validator raises over the value."""
    (field,) = [each for each in fields_of(cls) if each.name == name]
    if field.validator is None:
        return
    try:
        field.validator(object.__new__(cls), field, value)
    except AttributeError:
        return  # it looks at the other fields, which nobody knows yet


def _written(declared: Any, value: Any, layout: str) -> Any:
    # cattrs is half of the kernel's import time, and most events seal nothing but text.
    from outbox_kernel.kernel.wire.converter import converter_for  # noqa: PLC0415 - as said above

    converter = converter_for(layout)
    written = converter.get_unstructure_hook(declared)(value)
    if converter.structure(written, declared) != value:
        raise ValueError("it does not come back equal")
    return written
