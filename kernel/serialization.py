"""Events to JSON text and back (K8)."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, NoReturn

from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.errors import MalformedPayload
from outbox_kernel.kernel.limits import PAYLOAD_BYTES_MAX
from outbox_kernel.kernel.upcasting import lifted
from outbox_kernel.kernel.wire.names import EVENT_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from outbox_kernel.kernel.catalogue import EventType, Payload
    from outbox_kernel.kernel.events import DomainEvent


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


# Made once: json.loads and json.dumps make a new one per call when they are told anything.
_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def serialize_event(event: DomainEvent) -> str:
    """Return the event's payload as JSON text, or raise UnserializableEvent naming event and field."""
    event_type = catalogue.event_type_of(type(event))
    try:
        text = _encode(_out(event_type)(event))
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        from outbox_kernel.kernel.wire import blame  # noqa: PLC0415 - as below

        blame.unserializable(event_type, event, _encode, error)
    # A character takes up to four bytes, so only a text over a quarter of the limit needs counting.
    if len(text) * 4 > PAYLOAD_BYTES_MAX and len(text.encode()) > PAYLOAD_BYTES_MAX:
        from outbox_kernel.kernel.wire import blame  # noqa: PLC0415 - as below

        blame.oversized(event_type, event, _encode, PAYLOAD_BYTES_MAX)
    return text


def deserialize_event(event_type: str, payload: str | Payload, version: int | None = None) -> DomainEvent:
    """Restore an event from its stored payload.

    `version` is the payload's; by default it is what a payload in camel says itself, else the newest.
    """
    newest = catalogue.newest_event_type(event_type)
    body = parsed(event_type, payload)
    body = lifted(newest, body, _version_in(body, newest) if version is None else version)
    try:
        return _in(newest)(body, newest.cls)
    except Exception as error:  # noqa: BLE001 - all of it is raised again, as a sentence
        from outbox_kernel.kernel.wire import blame  # noqa: PLC0415 - as below

        blame.misfit(newest, body, error)


# cattrs is half of the kernel's import time; who only defines events and records them does without.


@cache
def _out(event_type: EventType) -> Callable[[DomainEvent], Payload]:
    from outbox_kernel.kernel.wire.converter import event_out  # noqa: PLC0415 - as said above

    return event_out(event_type)


@cache
def _in(event_type: EventType) -> Callable[[Payload, type[DomainEvent]], DomainEvent]:
    from outbox_kernel.kernel.wire.converter import event_in  # noqa: PLC0415 - as said above

    return event_in(event_type)


def _version_in(body: Payload, newest: EventType) -> int:
    said = body.get(EVENT_VERSION, newest.version) if newest.layout == "camel" else newest.version
    if type(said) is not int:
        raise MalformedPayload(
            f"the stored payload of event {newest.name!r} has an {EVENT_VERSION} that is {type(said).__name__}, "
            "not an integer"
        )
    return said


def decoded(text: str) -> object:
    """Return what JSON text says, or raise ValueError; NaN and the like are none."""
    # What the database hands out has no blanks around it, which `decode` would look for in two more steps.
    if text[:1] == "{":
        body, end = _decoder.raw_decode(text)
        if end == len(text):
            return body
    return _decoder.decode(text)


def parsed(event_type: str, payload: str | Payload) -> Payload:
    """Return a stored payload as the object that it is, or raise MalformedPayload."""
    if isinstance(payload, dict):
        return payload
    try:
        body = decoded(payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedPayload(f"the stored payload of event {event_type!r} is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise MalformedPayload(
            f"the stored payload of event {event_type!r} is {type(body).__name__}, not an object"
        )
    return body
