"""Which field is to blame: slow and exact, walked only on the way to an error."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from outbox_kernel.kernel.errors import MalformedPayload, UnserializableEvent
from outbox_kernel.kernel.identity import KEY_KINDS
from outbox_kernel.kernel.wire.converter import converter_for
from outbox_kernel.kernel.wire.masking import has_secrets, is_secret
from outbox_kernel.kernel.wire.names import event_names
from outbox_kernel.kernel.wire.records import RecordField, argument_fields
from outbox_kernel.kernel.wire.scalars import Misfit
from outbox_kernel.kernel.wire.types import is_optional, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from outbox_kernel.kernel.catalogue import EventType


def unserializable(
    event_type: EventType, event: Any, encode: Callable[[Any], str], error: Exception
) -> NoReturn:
    """Raise UnserializableEvent for the first field that cannot be written."""
    for field in argument_fields(event_type.cls):
        try:
            _field_text(event_type, field, event, encode)
        except RecursionError:
            raise UnserializableEvent(
                event_type.name, field.name, "is nested too deeply; flatten it"
            ) from error
        except (TypeError, ValueError, AttributeError) as reason:
            told = _reason(field, reason) + _remedy(field, getattr(event, field.name))
            raise UnserializableEvent(event_type.name, field.name, told) from _cause(field, error)
    raise error


def oversized(event_type: EventType, event: Any, encode: Callable[[Any], str], bytes_max: int) -> NoReturn:
    """Raise UnserializableEvent for the largest field of a payload over the limit."""
    sizes = {
        field.name: len(_field_text(event_type, field, event, encode).encode())
        for field in argument_fields(event_type.cls)
    }
    largest = max(sizes, key=lambda name: sizes[name])
    raise UnserializableEvent(
        event_type.name,
        largest,
        f"takes {sizes[largest]:,} bytes, and {bytes_max:,} are the limit for a payload; "
        "store the content elsewhere and record a reference to it",
    )


def misfit(event_type: EventType, body: dict[str, Any], error: Exception) -> NoReturn:
    """Raise MalformedPayload for the first key of a stored payload that does not fit its class."""
    where = f"the stored payload of event {event_type.name!r} does not fit version {event_type.version}:"
    names = event_names(event_type.cls, event_type.layout)
    for field in argument_fields(event_type.cls):
        key = names[field.name]
        if key not in body and field.is_required:
            raise MalformedPayload(f"{where} key {key!r} is missing") from error
        if key not in body:
            continue
        try:
            converter_for(event_type.layout).structure(body[key], field.type or Any)
        except Exception as reason:  # noqa: BLE001 - whatever it is, it becomes the sentence
            sentence = f"{where} key {key!r} {_reason(field, reason)}"
            raise MalformedPayload(sentence) from _cause(field, error)
    raise MalformedPayload(f"{where} {said_of(event_type.name, error)}") from cause_of(event_type.name, error)


def said_of(event_type: str, error: Exception) -> str:
    """Return what an error of somebody else's code says, without its words if they may quote a secret (K11)."""
    kind = type(error).__name__
    return f"{kind} (what it says is not shown)" if has_secrets(event_type) else f"{kind}: {error}"


def cause_of(event_type: str, error: Exception) -> Exception | None:
    """Return the error to show as the cause, None if it may quote a secret."""
    return None if has_secrets(event_type) else error


def _cause(field: RecordField, error: Exception) -> Exception | None:
    return None if is_secret(field) else error


def _reason(field: RecordField, error: Exception) -> str:
    if "integer string conversion" in str(error):
        return f"holds an int of over {sys.get_int_max_str_digits():,} digits, which nobody reads back; give its text"
    if is_secret(field) and not isinstance(error, Misfit):  # what the libraries say may quote the value
        return "holds a value, not shown here, that does not fit its type"
    return str(error)


def _remedy(field: RecordField, value: object) -> str:
    """Say what to do about a value that is missing, and perhaps only not there yet."""
    if value is not None or is_optional(field.type):
        return ""
    may_be_id = "; an id that the row makes is in `event.aggregate_key`, so that the event need not hold it"
    return (
        f": give it a value, or declare it `{inspect.formatannotation(field.type)} | None`"
        f"{may_be_id if unwrapped(field.type) in KEY_KINDS else ''}"
    )


def _field_text(event_type: EventType, field: RecordField, event: Any, encode: Callable[[Any], str]) -> str:
    hook = converter_for(event_type.layout).get_unstructure_hook(field.type)
    return encode(hook(getattr(event, field.name)))
