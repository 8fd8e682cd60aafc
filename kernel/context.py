"""What travels beside events: the request's headers (K10), and the delivery a handler serves (K5)."""

from __future__ import annotations

import re
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import attrs

from outbox_kernel.kernel.errors import InvalidContext, NothingDelivered
from outbox_kernel.kernel.events import RESERVED_FIELDS
from outbox_kernel.kernel.limits import HEADER_CHARACTERS_MAX, HEADER_INTEGER_BITS_MAX, HEADERS_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Header = str | int | bool | None

# The names under which a row, a published body or a broker's headers hold something else (X5, T1).
_ENVELOPE_NAMES = RESERVED_FIELDS | {
    "BCC",
    "CC",
    "aggregate_key",
    "created_at",
    "event_id",
    "headers",
    "not_before",
    "occurred_at",
    "payload",
    "position",
    "sensitive",
}

_EMPTY: Mapping[str, Header] = MappingProxyType({})
_INHERITED = ("traceparent", "tracestate")

# https://www.w3.org/TR/trace-context: no id is all zeros, no version is ff, and the first one ends with its flags.
_TRACE_IDS = "(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}"
_TRACEPARENT = re.compile(
    f"00-{_TRACE_IDS}-[0-9a-f]{{2}}|(?!00|ff)[0-9a-f]{{2}}-{_TRACE_IDS}-[0-9a-f]{{2}}(-.*)?"
)


class Served(Protocol):
    """What a handler serves while it runs."""

    @property
    def delivery(self) -> Delivery:
        """What the handler may read of it."""


@attrs.frozen
class Delivery:
    """One attempt to deliver one event to one handler, for the handler to read; position 0: it has no row."""

    event_id: UUID
    position: int
    attempt: int
    headers: Mapping[str, Header]

    @property
    def delivery(self) -> Delivery:
        """Itself, where nobody has more to tell of a run."""
        return self


_served: ContextVar[Served | None] = ContextVar("outbox_served", default=None)
# With what was served where they were said: a handler that begins inside gets those of its cause besides.
_headers: ContextVar[tuple[Served | None, Mapping[str, Header]]] = ContextVar(
    "outbox_headers", default=(None, _EMPTY)
)


@contextmanager
def event_context(**headers: object) -> Iterator[None]:
    """Add headers to every event flushed inside the block; inner blocks add to and override outer ones."""
    added = {key: _checked(key, value) for key, value in headers.items()}
    together = {**current_headers(), **added}
    _check_size(together)
    token = _headers.set((_served.get(), MappingProxyType(together)))
    try:
        yield
    finally:
        _headers.reset(token)


def current_headers() -> Mapping[str, Header]:
    """Return the headers that an event flushed now would carry."""
    served, (within, headers) = _served.get(), _headers.get()
    if served is None or served is within:
        return headers
    return MappingProxyType({**headers, **_caused_by(served.delivery)})


def _caused_by(delivery: Delivery) -> dict[str, Header]:
    """Return the headers of what a handler records: found out when it records something, which most never do."""
    cause, given = str(delivery.event_id), delivery.headers
    known = {"correlation_id": given.get("correlation_id") or cause, "causation_id": cause}
    return {**known, **{key: given[key] for key in _INHERITED if key in given}}


class handling:  # noqa: N801 - read as a verb, like the functions beside it
    """Run a handler: what it records is caused by the delivered event and correlated with its origin."""

    # A class, since a generator costs a relay a twentieth of its throughput; and one variable, for the same reason.
    __slots__ = ("_served", "_token")

    def __init__(self, served: Served) -> None:
        self._served = served

    def __enter__(self) -> None:
        """Begin."""
        self._token = _served.set(self._served)

    def __exit__(self, *_: object) -> None:
        """End."""
        try:  # noqa: SIM105 - which costs each run, and this costs none
            _served.reset(self._token)
        except ValueError:
            pass  # another context's: the garbage collector closes what a loop has left unfinished


def current_served() -> Served | None:
    """Return what the running handler serves, if one runs here."""
    return _served.get()


def current_delivery() -> Delivery:
    """Return the delivery that the running handler serves: position, headers and attempt of its event."""
    served = _served.get()
    if served is None:
        raise NothingDelivered(
            "no event is being delivered here; current_delivery() is for a running handler"
        )
    return served.delivery


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
