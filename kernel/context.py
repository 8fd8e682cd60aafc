"""What travels beside events: the request's headers (K10), and the delivery a handler serves (K5)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

import attrs

from outbox_kernel.kernel.errors import InvalidContext, NothingDelivered
from outbox_kernel.kernel.events import RESERVED_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator

Header = str | int | bool | None

# The names under which a row, a published body or a broker's headers hold something else (X5, T1).
_ENVELOPE_NAMES = RESERVED_FIELDS | {
    "BCC",
    "CC",
    "aggregate_key",
    "also_consumed_from",
    "consumed_from",
    "created_at",
    "event_id",
    "headers",
    "not_before",
    "occurred_at",
    "payload",
    "position",
}

_EMPTY: Mapping[str, Header] = MappingProxyType({})
_INHERITED = ("traceparent", "tracestate")
HEADER_CHARACTERS_MAX = 8_192
# What a broker's header and every reader's own integer can hold.
HEADER_INTEGER_BITS_MAX = 63
HEADERS_BYTES_MAX = 64 * 1024

# https://www.w3.org/TR/trace-context: no id is all zeros, no version is ff, and the first one ends with its flags.
_TRACE_IDS = "(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}"
_TRACEPARENT = re.compile(
    f"00-{_TRACE_IDS}-[0-9a-f]{{2}}|(?!00|ff)[0-9a-f]{{2}}-{_TRACE_IDS}-[0-9a-f]{{2}}(-.*)?"
)

_headers: ContextVar[Mapping[str, Header]] = ContextVar("outbox_headers", default=_EMPTY)
_delivery: ContextVar[Delivery | None] = ContextVar("outbox_delivery", default=None)


@attrs.frozen
class Delivery:
    """One attempt to deliver one event to one handler, for the handler to read; position 0: it has no row."""

    event_id: UUID
    position: int
    attempt: int
    headers: Mapping[str, Header]


@contextmanager
def event_context(**headers: object) -> Iterator[None]:
    """Add headers to every event flushed inside the block; inner blocks add to and override outer ones."""
    added = {key: _checked(key, value) for key, value in headers.items()}
    together = {**_headers.get(), **added}
    _check_size(together)
    token = _headers.set(MappingProxyType(together))
    try:
        yield
    finally:
        _headers.reset(token)


def current_headers() -> Mapping[str, Header]:
    """Return the headers that an event flushed now would carry."""
    return _headers.get()


class _Caused(Mapping[str, "Header"]):
    """Headers of what a handler records; made when it records something, which most runs never do."""

    __slots__ = ("_delivery", "_made", "_outer")

    def __init__(self, outer: Mapping[str, Header], delivery: Delivery) -> None:
        self._outer, self._delivery = outer, delivery
        self._made: dict[str, Header] | None = None

    def _headers(self) -> dict[str, Header]:
        if self._made is None:
            cause, given = str(self._delivery.event_id), self._delivery.headers
            inherited = {key: given[key] for key in _INHERITED if key in given}
            known = {"correlation_id": given.get("correlation_id") or cause, "causation_id": cause}
            self._made = {**self._outer, **known, **inherited}
        return self._made

    def __getitem__(self, key: str) -> Header:
        return self._headers()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers())

    def __len__(self) -> int:
        return len(self._headers())


class handling:  # noqa: N801 - read as a verb, like the functions beside it
    """Run a handler: what it records is caused by the delivered event and correlated with its origin."""

    # A class, since a generator costs a relay a twentieth of its throughput.
    __slots__ = ("_delivery", "_tokens")

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def __enter__(self) -> None:
        """Begin."""
        caused = _Caused(_headers.get(), self._delivery)
        self._tokens = _headers.set(caused), _delivery.set(self._delivery)

    def __exit__(self, *_: object) -> None:
        """End."""
        headers, delivery = self._tokens
        try:
            _delivery.reset(delivery)
            _headers.reset(headers)
        except ValueError:
            pass  # another context's: the garbage collector closes what a loop has left unfinished


def current_delivery() -> Delivery:
    """Return the delivery that the running handler serves: position, headers and attempt of its event."""
    delivery = _delivery.get()
    if delivery is None:
        raise NothingDelivered(
            "no event is being delivered here; current_delivery() is for a running handler"
        )
    return delivery


def _checked(key: str, value: Any) -> Header:
    if key in _ENVELOPE_NAMES:
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
    elif isinstance(value, int) and value.bit_length() > HEADER_INTEGER_BITS_MAX:
        raise InvalidContext(
            f"header {key!r} holds an integer of {value.bit_length():,} bits; {HEADER_INTEGER_BITS_MAX} are the "
            "limit, so give its text"
        )
    if key == "traceparent" and not _TRACEPARENT.fullmatch(str(value)):
        raise InvalidContext(
            f"header 'traceparent' is {value!r}, which is no W3C trace context; leave it out"
        )
    return value


def _check_size(headers: Mapping[str, Header]) -> None:
    size = sum(len(f"{key}{value}".encode()) for key, value in headers.items())
    if size > HEADERS_BYTES_MAX:
        raise InvalidContext(
            f"the headers take {size:,} bytes together, and {HEADERS_BYTES_MAX:,} are the limit; "
            "every event carries them, so leave out what is no context"
        )


def _check_text(key: str, value: str) -> None:
    if len(value) > HEADER_CHARACTERS_MAX:
        raise InvalidContext(
            f"header {key!r} has {len(value):,} characters; {HEADER_CHARACTERS_MAX:,} are the limit"
        )
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidContext(
            f"header {key!r} holds a NUL or a lone surrogate, which cannot be stored; clean it first"
        )
