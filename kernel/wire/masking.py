"""Payloads for people to look at, with what is sensitive masked (K11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args, get_origin

from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.wire.names import EVENT_VERSION, event_names, names_of
from outbox_kernel.kernel.wire.records import (
    MASK,
    RecordField,
    holds_secrets,
    is_marked,
    is_record,
    is_value_object,
    record_fields,
)
from outbox_kernel.kernel.wire.types import is_optional, unwrapped

if TYPE_CHECKING:
    from outbox_kernel.kernel.catalogue import Payload


def masked_payload(event_type: str, payload: Payload) -> Payload:
    """Return a copy of a stored payload in which what is declared `sensitive()`, at any depth, is masked.

    So is what the newest class does not know: an older version may have stored a secret under that key.
    """
    newest = catalogue.newest_event_type(event_type)
    masked = _masked_fields(newest.cls, event_names(newest.cls, newest.layout), payload, newest.layout)
    if newest.layout == "camel" and EVENT_VERSION in payload:
        masked[EVENT_VERSION] = payload[EVENT_VERSION]
    return masked


def is_secret(field: RecordField) -> bool:
    """Tell whether a field, or anything that its type holds, was declared with `sensitive()`."""
    return field.is_sensitive or holds_secrets(field.type)


def has_secrets(event_type: str) -> bool:
    """Tell whether any version of an event known here, at any depth, has a field declared with `sensitive()`."""
    versions = catalogue.definitions.event_by_name.get(event_type, {})
    return any(holds_secrets(version.cls) for version in versions.values())


def _masked_fields(cls: type[Any], names: dict[str, str], body: Payload, layout: str) -> Payload:
    fields = {names[field.name]: field for field in record_fields(cls)}
    return {key: _masked_field(fields.get(key), value, layout) for key, value in body.items()}


def _masked_field(field: RecordField | None, value: Any, layout: str) -> Any:
    return MASK if field is None or field.is_sensitive else _masked(field.type, value, layout)


def _masked(declared: Any, value: Any, layout: str) -> Any:
    if value is None or not holds_secrets(declared):
        return value
    return MASK if is_marked(declared) else _masked_parts(unwrapped(declared), value, layout)


def _masked_parts(declared: Any, value: Any, layout: str) -> Any:
    if is_optional(declared):
        return _masked(_present(declared), value, layout)
    if isinstance(value, list) and get_origin(declared) in (list, set, frozenset, tuple):
        return _masked_members(get_args(declared), value, layout)
    if isinstance(value, dict) and is_record(declared) and not is_value_object(declared):
        return _masked_fields(declared, names_of(declared, layout), value, layout)
    if isinstance(value, dict) and get_origin(declared) is dict and not holds_secrets(get_args(declared)[0]):
        return {key: _masked(get_args(declared)[1], member, layout) for key, member in value.items()}
    return MASK


def _masked_members(declared: tuple[Any, ...], value: list[Any], layout: str) -> list[Any]:
    # A tuple of several types has one per place; every other container has one for all.
    types = (
        declared if len(declared) == len(value) and Ellipsis not in declared else declared[:1] * len(value)
    )
    return [_masked(each, member, layout) for each, member in zip(types, value, strict=True)]


def _present(optional: Any) -> Any:
    return next(member for member in get_args(optional) if member is not type(None))
