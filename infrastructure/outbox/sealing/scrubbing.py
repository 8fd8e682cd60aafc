"""What errors say, without what was in sealed fields: it would outlive their keys in tables and logs (O6, K11).

An error is somebody else's words, and may quote a value whole, cut or escaped. So whatever piece of a value is long
enough to be one is masked, in either case and in the usual ways to write it. What hides a value on purpose, as a cipher
or a digest does, is not found; nor are the names of keys in free JSON, and values of fewer than four characters.
"""

from __future__ import annotations

import json
import traceback
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from outbox_kernel.infrastructure.outbox.sealing.limits import (
    CAUSES_MAX,
    PIECE_CHARACTERS,
    SEARCHED_CHARACTERS_MAX,
    SECRET_CHARACTERS_MIN,
    SHOWN_CHARACTERS_MAX,
)
from outbox_kernel.kernel.catalogue import event_type_of
from outbox_kernel.kernel.errors import UnserializableEvent
from outbox_kernel.kernel.events import DomainEvent
from outbox_kernel.kernel.serialization import serialize_event
from outbox_kernel.kernel.wire.records import MASK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

NOT_SHOWN = f"{MASK} (what it says is not shown: it, or what it may quote, is too long to look through)"


class Scrubbed(Exception):
    """An error as it may be logged: its traceback as text."""


def texts_in(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the texts that may not be told of values as JSON has them."""
    return tuple(text for value in values for text in _texts(value) if len(text) >= SECRET_CHARACTERS_MIN)


def secrets_of(given: object) -> tuple[str, ...]:
    """Return the texts that may not be told of what a handler was given, one event or several, by its class."""
    if isinstance(given, list):
        return tuple(text for each in given for text in secrets_of(each))
    sealed = event_type_of(type(given)).sealed if isinstance(given, DomainEvent) else ()
    if not isinstance(given, DomainEvent) or not sealed:
        return ()
    try:
        payload = json.loads(serialize_event(given))
    except UnserializableEvent:
        return texts_in(str(getattr(given, field.name)) for field in sealed)
    return texts_in(payload[field.key] for field in sealed)


def scrubbed(text: str, secrets: Sequence[str]) -> str:
    """Return a text with what it has of these masked."""
    if not secrets:
        return text
    if len(text) + sum(map(len, secrets)) > SEARCHED_CHARACTERS_MAX:
        return NOT_SHOWN
    pieces: dict[int, set[str]] = {}
    for written in {_folded(each) for secret in secrets for each in _ways_to_write(secret)}:
        size = min(len(written), PIECE_CHARACTERS)
        found = pieces.setdefault(size, set())
        found.update(written[start : start + size] for start in range(len(written) - size + 1))
    return _masked(text, pieces)


def traceback_of(error: BaseException | None, secrets: Sequence[str]) -> BaseException | None:
    """Return what to log for an error: itself, or its traceback without what may not be told."""
    if error is None or not (secrets or _is_long(error)):
        return error
    told = "".join(traceback.TracebackException.from_exception(error).format())
    return Scrubbed(f"{type(error).__name__}\n{_shortened(scrubbed(told, secrets))}")


def _is_long(error: BaseException) -> bool:
    """Whether its words, or those of what it was raised for, would fill a log that does not cut them as ours does."""
    cause: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if cause is None:
            return False
        try:
            if len(str(cause)) > SEARCHED_CHARACTERS_MAX:
                return True
        except Exception:  # noqa: BLE001 - an error's words are somebody else's code, and whoever logs it meets them too
            return False
        cause = cause.__cause__ or cause.__context__
    return False


def _shortened(text: str) -> str:
    if len(text) <= SEARCHED_CHARACTERS_MAX:
        return text
    half = SHOWN_CHARACTERS_MAX // 2
    return f"{text[:half]} […{len(text) - 2 * half:,} characters cut…] {text[-half:]}"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _ways_to_write(secret: str) -> Iterator[str]:
    yield secret
    yield repr(secret)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield quote(secret, safe="", errors="replace")
    yield quote_plus(secret, errors="replace")


def _masked(text: str, pieces: dict[int, set[str]]) -> str:
    folded = _folded(text)
    is_hidden = bytearray(len(text))
    for size, found in pieces.items():
        for start in range(len(text) - size + 1):
            if folded[start : start + size] in found:
                is_hidden[start : start + size] = b"\1" * size
    shown: list[str] = []
    for character, hidden, before in zip(text, is_hidden, b"\0" + is_hidden, strict=False):
        if not hidden:
            shown.append(character)
        elif not before:
            shown.append(MASK)
    return "".join(shown)


def _folded(text: str) -> str:
    # Character by character, since some have another length in lower case.
    return "".join(each if len(lower := each.lower()) != 1 else lower for each in text)
