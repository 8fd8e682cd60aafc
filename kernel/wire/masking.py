"""Payloads for people to look at, and for those who are not to have all of one, without what is sensitive (K11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args, get_origin

from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.wire.names import EVENT_VERSION, SEALED, event_names, names_of
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
    from outbox_kernel.kernel.catalogue import EventType, Payload


# What a field is replaced by that is left out.
_NOTHING = object()


def masked_payload(event_type: str, payload: Payload) -> Payload:
    """Return a copy of a stored payload in which what is declared `sensitive()`, at any depth, is masked.

    So is what the newest class does not know: an older version may have stored a secret under that key.
    """
    return _masked_payload(catalogue.newest_event_type(event_type), without_seals(payload), MASK)


def reduced_payload(event_type: str, version: int, payload: Payload, *, omit: bool) -> Payload:
    """Return a copy of a payload of this version for whoever is not to have its secrets: masked, or left out.

    What its class, or the newest where that version has none here, does not know may be one as well.
    """
    newest = catalogue.newest_event_type(event_type)
    known = catalogue.definitions.event_by_name[event_type].get(version, newest)
    return _masked_payload(known, payload, _NOTHING if omit else MASK)


def without_seals(payload: Payload) -> Payload:
    """Return a stored payload with a mask at the place of each field that is sealed in it."""
    sealed = payload.get(SEALED)
    if not isinstance(sealed, dict):
        return payload
    rest = {key: value for key, value in payload.items() if key != SEALED}
    return {**rest, **dict.fromkeys(sealed, MASK)}


def is_secret(field: RecordField) -> bool:
    """Tell whether a field, or anything that its type holds, was declared with `sensitive()`."""
    return field.is_sensitive or holds_secrets(field.type)


def has_secrets(event_type: str) -> bool:
    """Tell whether any version of an event known here, at any depth, has a field declared with `sensitive()`."""
    versions = catalogue.definitions.event_by_name.get(event_type, {})
    return any(holds_secrets(version.cls) for version in versions.values())


def _masked_payload(known: EventType, payload: Payload, mask: object) -> Payload:
    masked = _masked_fields(known.cls, event_names(known.cls, known.layout), payload, known.layout, mask)
    if known.layout == "camel" and EVENT_VERSION in payload:
        masked[EVENT_VERSION] = payload[EVENT_VERSION]
    return masked


def _masked_fields(
    cls: type[Any], names: dict[str, str], body: Payload, layout: str, mask: object
) -> Payload:
    fields = {names[field.name]: field for field in record_fields(cls)}
    masked = {key: _masked_field(fields.get(key), value, layout, mask) for key, value in body.items()}
    return {key: value for key, value in masked.items() if value is not _NOTHING}


def _masked_field(field: RecordField | None, value: Any, layout: str, mask: object) -> Any:
    return mask if field is None or field.is_sensitive else _masked(field.type, value, layout, mask)


def _masked(declared: Any, value: Any, layout: str, mask: object) -> Any:
    if value is None or not holds_secrets(declared):
        return value
    return mask if is_marked(declared) else _masked_parts(unwrapped(declared), value, layout, mask)


def _masked_parts(declared: Any, value: Any, layout: str, mask: object) -> Any:
    if is_optional(declared):
        return _masked(_present(declared), value, layout, mask)
    if isinstance(value, list) and get_origin(declared) in (list, set, frozenset, tuple):
        return _masked_members(get_args(declared), value, layout, mask)
    if isinstance(value, dict) and is_record(declared) and not is_value_object(declared):
        return _masked_fields(declared, names_of(declared, layout), value, layout, mask)
    if isinstance(value, dict) and get_origin(declared) is dict and not holds_secrets(get_args(declared)[0]):
        members = {key: _masked(get_args(declared)[1], each, layout, mask) for key, each in value.items()}
        return {key: each for key, each in members.items() if each is not _NOTHING}
    return mask


def _masked_members(declared: tuple[Any, ...], value: list[Any], layout: str, mask: object) -> list[Any]:
    # A tuple of several types has one per place; every other container has one for all.
    types = (
        declared if len(declared) == len(value) and Ellipsis not in declared else declared[:1] * len(value)
    )
    masked = [_masked(each, member, layout, mask) for each, member in zip(types, value, strict=True)]
    return [each for each in masked if each is not _NOTHING]


def _present(optional: Any) -> Any:
    return next(member for member in get_args(optional) if member is not type(None))
