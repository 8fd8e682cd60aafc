"""What travels beside events: the request's headers (K10), and the delivery a handler serves (K5)."""

from __future__ import annotations

import re
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

import attrs

from kernel.errors import InvalidContext
from kernel.events import RESERVED_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Header = str | int | bool | None

_EMPTY: Mapping[str, Header] = MappingProxyType({})
_INHERITED = ("traceparent", "tracestate")
HEADER_CHARACTERS_MAX = 8_192

_headers: ContextVar[Mapping[str, Header]] = ContextVar("outbox_headers", default=_EMPTY)
_delivery: ContextVar[Delivery | None] = ContextVar("outbox_delivery", default=None)


@attrs.frozen
class Delivery:
    """One attempt to deliver one event to one handler, for the handler to read."""

    event_id: UUID
    position: int
    attempt: int
    headers: Mapping[str, Header]


@contextmanager
def event_context(**headers: object) -> Iterator[None]:
    """Add headers to every event flushed inside the block; inner blocks add to and override outer ones."""
    added = {key: _checked(key, value) for key, value in headers.items()}
    token = _headers.set({**_headers.get(), **added})
    try:
        yield
    finally:
        _headers.reset(token)


def current_headers() -> Mapping[str, Header]:
    """Return the headers that an event flushed now would carry."""
    return _headers.get()


@contextmanager
def handling(delivery: Delivery) -> Iterator[None]:
    """Run a handler: what it records is caused by the delivered event and correlated with its origin."""
    cause = {
        "correlation_id": delivery.headers.get("correlation_id") or str(delivery.event_id),
        "causation_id": str(delivery.event_id),
        **{key: delivery.headers[key] for key in _INHERITED if key in delivery.headers},
    }
    header_token = _headers.set({**_headers.get(), **cause})
    delivery_token = _delivery.set(delivery)
    try:
        yield
    finally:
        _delivery.reset(delivery_token)
        _headers.reset(header_token)


def current_delivery() -> Delivery:
    """Return the delivery that the running handler serves: position, headers and attempt of its event."""
    delivery = _delivery.get()
    if delivery is None:
        raise InvalidContext("no event is being delivered here; current_delivery() is for a running handler")
    return delivery


def _checked(key: str, value: Any) -> Header:
    if key in RESERVED_FIELDS:
        raise InvalidContext(f"header {key!r} is a key of the envelope; choose another name")
    _check_text(key, key)
    if isinstance(value, UUID):
        value = str(value)
    if value is not None and not isinstance(value, str | int | bool):
        raise InvalidContext(
            f"header {key!r} holds {type(value).__name__}; give str, int, bool, UUID or None"
        )
    if isinstance(value, str):
        _check_text(key, value)
    if key == "traceparent" and not re.fullmatch(
        r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}.*", str(value)
    ):
        raise InvalidContext(
            f"header 'traceparent' is {value!r}, which is no W3C trace context; leave it out"
        )
    return value


def _check_text(key: str, value: str) -> None:
    if len(value) > HEADER_CHARACTERS_MAX:
        raise InvalidContext(
            f"header {key!r} has {len(value):,} characters; {HEADER_CHARACTERS_MAX:,} are the limit"
        )
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidContext(
            f"header {key!r} holds a NUL or a lone surrogate, which cannot be stored; clean it first"
        )
