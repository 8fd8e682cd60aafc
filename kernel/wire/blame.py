"""Which field is to blame: slow and exact, walked only on the way to an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import attrs

from kernel.errors import UnserializableEvent
from kernel.wire.converter import converter_for, wire_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.catalogue import EventType


def unserializable(
    event_type: EventType, event: Any, encode: Callable[[Any], str], error: Exception
) -> NoReturn:
    """Raise UnserializableEvent for the first field that cannot be written."""
    for field in attrs.fields(event_type.cls):
        try:
            _field_text(event_type, field, event, encode)
        except RecursionError:
            raise UnserializableEvent(
                event_type.name, field.name, "is nested too deeply; flatten it"
            ) from error
        except (TypeError, ValueError, AttributeError) as reason:
            raise UnserializableEvent(event_type.name, field.name, str(reason)) from error
    raise error


def oversized(event_type: EventType, event: Any, encode: Callable[[Any], str], bytes_max: int) -> NoReturn:
    """Raise UnserializableEvent for the largest field of a payload over the limit."""
    sizes = {
        field.name: len(_field_text(event_type, field, event, encode).encode())
        for field in attrs.fields(event_type.cls)
    }
    largest = max(sizes, key=lambda name: sizes[name])
    raise UnserializableEvent(
        event_type.name,
        largest,
        f"takes {sizes[largest]:,} bytes, and {bytes_max:,} are the limit for a payload; "
        "store the content elsewhere and record a reference to it",
    )


def misfit(event_type: EventType, body: dict[str, Any], error: Exception) -> str:
    """Say which key of a stored payload does not fit its class."""
    converter = converter_for(event_type.layout)
    names = wire_names(event_type)
    found = f"{type(error).__name__}: {error}"
    for field in attrs.fields(event_type.cls):
        key = names[field.name]
        if key not in body:
            if field.default is attrs.NOTHING:
                found = f"key {key!r} is missing"
                break
            continue
        try:
            converter.structure(body[key], field.type)
        except Exception as reason:  # noqa: BLE001 - whatever it is, it becomes the sentence
            found = f"key {key!r} {reason}"
            break
    return (
        f"the stored payload of event {event_type.name!r} does not fit version {event_type.version}: {found}"
    )


def _field_text(event_type: EventType, field: Any, event: Any, encode: Callable[[Any], str]) -> str:
    hook = converter_for(event_type.layout).get_unstructure_hook(field.type)
    return encode(hook(getattr(event, field.name)))
