"""A message that has arrived as the event that it tells of, or why it tells of none (T3, X5, C7)."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from outbox_kernel.infrastructure.brokers.limits import BIG_INTEGER_MAX, INTEGER_MAX
from outbox_kernel.infrastructure.brokers.messages import ENVELOPE_HEADERS, encode
from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.kernel.catalogue import newest_event_type, sealed_fields_of
from outbox_kernel.kernel.errors import UnknownEventType
from outbox_kernel.kernel.identity import uuid_of
from outbox_kernel.kernel.limits import HEADERS_BYTES_MAX, NAME_CHARACTERS_MAX, PAYLOAD_BYTES_MAX
from outbox_kernel.kernel.wire.names import SEALED
from outbox_kernel.kernel.wire.sensitive import sensitive_in
from outbox_kernel.kernel.wire.subjects import subject_in
from outbox_kernel.kernel.wire.types import fields_of

if TYPE_CHECKING:
    from collections.abc import Mapping

# What a body in snake case has beside the payload and the context.
_ENVELOPE_KEYS = ("event_type", "aggregate_type", "aggregate_id", "timestamp")
# What the names begin with that brokers write on the way, and we on the way to the dead letters. Others that begin with
# x- are somebody's context.
_BROKERS_OWN = (
    "x-acquired-count",
    "x-death",
    "x-delivery-count",
    "x-first-death-",
    "x-last-death-",
    "x-outbox-",
    "x-received-from",
    "x-shovelled",
    "x-stream-",
)
_MOMENTS = ("timestamp", "occurred_at", "occurredOn")
_JSON_NAMES = {
    list: "array",
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
}
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class Unstorable(InfrastructureError):
    """The message is no event that an outbox can hold."""


class Received(NamedTuple):
    """An event as a message told of it; the fields are columns of the outbox."""

    event_id: UUID
    event_type: str
    event_version: int
    aggregate_type: str | None
    aggregate_id: UUID | None
    aggregate_version: int | None
    payload: str
    headers: str
    occurred_at: datetime
    aggregate_key: str | None = None
    sensitive: str | None = None


def read(message_id: str | None, headers: Mapping[str, Any], body: bytes) -> Received:
    """Take a message apart, ours or one that a stranger wrote like ours; raise Unstorable with the reason."""
    content = _content(body)
    # A key that no payload in camel case can have.
    snake = "event_type" in content
    told = {**{key: content.get(key) for key in _ENVELOPE_KEYS if snake}, **headers}
    context = {key: value for key, value in headers.items() if _is_context(key, value)}
    # The body's own first: clients of a broker give a message that has no id one by chance.
    event_id = _uuid("event id", content.get("event_id") or content.get("eventId") or message_id)
    aggregate_id = _uuid("aggregate_id", told.get("aggregate_id"))
    aggregate_type = _name("aggregate_type", told.get("aggregate_type"))
    event_type = _required(_name("event_type", told.get("event_type")), "event_type")
    version = _number("event_version", told.get("event_version"), INTEGER_MAX) or _version_in(content)
    aggregate_key = _key(told.get("aggregate_key"))
    if aggregate_id is None and aggregate_key is not None:
        aggregate_id = uuid_of(aggregate_key)
    if aggregate_id is not None and aggregate_type is None:
        raise Unstorable(
            "it has an aggregate_id without an aggregate_type, so the order of its events is unknown"
        )
    payload = _payload(content, context, event_type, snake=snake)
    sensitive = sensitive_in(event_type, payload)
    return Received(
        _required(event_id, "event id"),
        event_type,
        version,
        aggregate_type,
        aggregate_id,
        _number("aggregate_version", told.get("aggregate_version"), BIG_INTEGER_MAX),
        _text("body", _sealable(payload, event_type, version), PAYLOAD_BYTES_MAX),
        _text("headers", context, 2 * HEADERS_BYTES_MAX),
        _moment(content),
        aggregate_key,
        encode(sensitive) if sensitive else None,
    )


def _content(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unstorable(f"its body is no JSON ({error})") from None
    if not isinstance(content, dict):
        raise Unstorable(f"its body is a JSON {_JSON_NAMES[type(content)]}, and an event is an object")
    return content


def _payload(
    content: dict[str, Any], context: Mapping[str, Any], event_type: str, *, snake: bool
) -> dict[str, Any]:
    """Return the event's own part: a body in snake case repeats the context, and a stranger's may use its names."""
    if not snake:
        return content
    repeated = {key for key in content.keys() & context.keys() if content[key] == context[key]}
    added = repeated - _fields_of(event_type) if repeated else repeated
    return {key: value for key, value in content.items() if key not in _ENVELOPE_KEYS and key not in added}


def _sealable(payload: dict[str, Any], event_type: str, version: int) -> dict[str, Any]:
    """Return the payload if what its class declares as sealed can be sealed here, and nothing is already (O6)."""
    if SEALED in payload:
        raise Unstorable(
            f"its body has a key {SEALED!r}, under which an outbox has what it has encrypted itself: publish what "
            "handlers get, and not what is stored"
        )
    for field in sealed_fields_of(event_type, version):
        if payload.get(field.key) is not None:
            try:
                subject_in(payload, field)
            except ValueError as error:
                raise Unstorable(f"its {field.key!r} {error}") from None
    return payload


def _fields_of(event_type: str) -> set[str]:
    try:
        return {field.name for field in fields_of(newest_event_type(event_type).cls)}
    except UnknownEventType:
        return set()  # nobody here handles it


def _is_context(key: str, value: object) -> bool:
    if key in ENVELOPE_HEADERS or key.startswith(_BROKERS_OWN):
        return False
    return value is None or isinstance(value, str | int | bool)


def _required(value: Any, name: str) -> Any:
    if value is None:
        raise Unstorable(f"it has no {name}, neither in its headers nor in its body")
    return value


def _uuid(name: str, value: object) -> UUID | None:
    if value is None:
        return None
    try:
        return UUID(value if isinstance(value, str) else "")
    except ValueError:
        raise _not(name, value) from None


def _key(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or uuid_of(value) is None:
        raise _not("aggregate_key", value)
    return value


def _name(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARACTERS_MAX or not value.isprintable():
        raise _not(name, value)
    return value


def _number(name: str, value: object, most: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise _not(name, value)
    return value


def _version_in(content: Mapping[str, Any]) -> int:
    return _number("eventVersion", content.get("eventVersion"), INTEGER_MAX) or 1


def _not(name: str, value: object) -> Unstorable:
    return Unstorable(f"its {name} cannot be {str(value)[:60]!r}")


def _moment(content: Mapping[str, Any]) -> datetime:
    told = next((content[key] for key in _MOMENTS if key in content), None)
    _required(told, "time of occurrence")
    try:
        moment = datetime.fromisoformat(told if isinstance(told, str) else "")
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise _not("time of occurrence", told)


def _text(what: str, value: Mapping[str, Any], bytes_max: int) -> str:
    try:
        text = encode(value)
        size = len(text.encode())
    except (ValueError, RecursionError):
        # NaN, which json.loads lets through, and half a surrogate pair, which has no encoding.
        raise Unstorable(f"its {what} holds a value that PostgreSQL cannot store") from None
    if "\\u0000" in text and _NUL.search(text):
        raise Unstorable(f"its {what} holds a NUL, which PostgreSQL cannot store")
    if size > bytes_max:
        raise Unstorable(f"its {what} has {size:,} bytes, and {bytes_max:,} are the limit")
    return text
