"""The kernel's way and the fast one, side by side: what either makes of a payload, and payloads that try both."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from outbox_kernel.infrastructure.outbox.decoding import decoder_for
from outbox_kernel.kernel import DomainEvent, deserialize_event
from outbox_kernel.kernel.catalogue import EventType
from outbox_kernel.kernel.clock import using_clock
from outbox_kernel.kernel.errors import KernelError
from outbox_kernel.kernel.testing import FrozenClock
from outbox_kernel.kernel.testing.copying import same_state
from tests.properties.wire_values import free_json

# Each is taken by some reader of such things, and refused, rounded or read otherwise by another.
MOMENTS = [
    "2026-11-19T14:26:59.1234567+00:00",
    "2026-11-19T14:26:59.9999999Z",
    "2026-11-19T14:26:59z",
    "2026-11-19t14:26:59Z",
    "2026-11-19 14:26:59Z",
    "2026-11-19T14:26:59",
    "2026-11-19T14:26Z",
    "2026-11-19T14:26:59-00:00",
    "2026-11-19T14:26:59+0200",
    "2026-11-19T14:26:59+02:00:30",
    "2026-11-19T14:26:59,5+00:00",
    "2026-11-19T24:00:00Z",
    "2016-12-31T23:59:60Z",
    "0001-01-01T00:00:00+01:00",
    "2026-W47-4T10:00:00Z",
    "20261119T142659Z",
    "2026-11-19",
    "20261119",
    "2026-W47-4",
    "2026-02-30",
    "1700000000",
]
IDS = [
    "01A1F434-90B2-79F4-A90F-80C3A8E25FC5",
    "01a1f43490b279f4a90f80c3a8e25fc5",
    "{01a1f434-90b2-79f4-a90f-80c3a8e25fc5}",
    "urn:uuid:01a1f434-90b2-79f4-a90f-80c3a8e25fc5",
    "01a1f43490b2-79f4-a90f-80c3a8e25fc5",
    "01a1f434-90b2-79f4-a90f-80c3a8e25fcg",
    "01a1f434-90b2-79f4-a90f-80c3a8e25fc\u0665",
    "0_1a1f434-90b2-79f4-a90f-80c3a8e25fc",
]
TEXTS = [
    "",
    "1",
    "12.50",
    "1e5",
    "1_000",
    " 7 ",
    "-0",
    "NaN",
    "sNaN",
    "Infinity",
    "true",
    "null",
    "a",
    "\0",
    "AA==",
]
DURATIONS = ["P1D", "PT0.5S", "P1W", "P1Y", "-P1D", "PT1.1234567S"]
# As JSON writes them: Python would write some of them in another way.
NUMBERS = [
    *(
        "0",
        "-0",
        "-0.0",
        "1.0",
        "1e2",
        "1E+2",
        "0.1",
        "1.5",
        "1e400",
        "-1e400",
        "1e-400",
        "01",
        "1.",
        ".5",
        "+1",
    ),
    *("9007199254740993", "18446744073709551615", "18446744073709551616", "-9223372036854775809", "1" * 400),
    *("1" * 4_301, "NaN", "Infinity", "-Infinity", "true", "null", "0.5000000000000000277555756156289135106"),
]
STRINGS = [
    '"\\ud800"',
    '"\\ud83d\\ude00"',
    '"\\u0000"',
    '"\\x"',
    '"\\u12"',
    '"\x01"',
    '"\x7f"',
    '"\\/"',
    "'a'",
    '"',
]
LITERALS = [*NUMBERS, *STRINGS, *map(json.dumps, [*MOMENTS, *IDS, *TEXTS, *DURATIONS])]

_COMING = ["", *'"\\{}[],: \t\n\r\x0b\xa0\ufeff\ud80001.-eE+Zn\0', "null", "\\u00e9", "//"]

_literals = st.sampled_from(LITERALS)
# Stands for what is written in its place, since `json` writes no literal that is not its own.
_HOLE = "a hole to be filled"

Outcome = tuple[DomainEvent | None, str]


def outcome(decode: Callable[[], DomainEvent]) -> Outcome:
    """What comes of it, by a clock that gives all who are without an id and a moment the same."""
    with using_clock(FrozenClock()):
        try:
            return decode(), ""
        except KernelError as error:
            return None, f"{type(error).__name__}: {error}"


def assert_alike(kind: EventType, payload: str, version: int | None = None) -> None:
    stored = kind.version if version is None else version
    true, told = outcome(lambda: deserialize_event(kind.name, payload, stored))
    found, said = outcome(lambda: decoder_for(kind.name, stored)(payload))
    assert said == told
    assert (found is None) == (true is None)
    if true is not None:
        assert type(found) is type(true)
        assert same_state(found, true)
        assert repr(found) == repr(true)
        assert list(vars(found)) == list(vars(true))


def spoilt(text: str) -> SearchStrategy[str]:
    """A payload with something wrong in it, or merely written in another way."""
    return st.one_of(_with_other_values(text), _with_other_keys(text), _with_other_characters(text))


@st.composite
def _with_other_values(draw: st.DrawFn, text: str) -> str:
    body = json.loads(text)
    holder, key = draw(st.sampled_from(_places(body)))
    if draw(st.booleans()):
        holder[key] = draw(free_json)
        return json.dumps(body)
    holder[key] = _HOLE
    return json.dumps(body, ensure_ascii=False).replace(json.dumps(_HOLE), draw(_literals))


@st.composite
def _with_other_keys(draw: st.DrawFn, text: str) -> str:
    body = json.loads(text)
    objects = [body, *(holder[key] for holder, key in _places(body) if isinstance(holder[key], dict))]
    chosen = draw(st.sampled_from([each for each in objects if each] or [body]))
    key = draw(st.sampled_from(sorted(chosen)))
    match draw(st.integers(0, 3)):
        case 0:
            del chosen[key]
        case 1:
            chosen[draw(st.text(max_size=3))] = draw(free_json)
        case 2:
            chosen[key.upper()] = chosen.pop(key)
        case _:
            # Twice: the second counts.
            written = json.dumps(body)
            return f"{{{json.dumps(min(body))}: {draw(_literals)}, {written[1:]}"
    return json.dumps(body)


@st.composite
def _with_other_characters(draw: st.DrawFn, text: str) -> str:
    at = draw(st.integers(0, len(text)))
    gone = draw(st.integers(0, 2))
    come = draw(st.sampled_from(_COMING))
    return f"{text[:at]}{come}{text[at + gone :]}"


def _places(body: Any) -> list[tuple[Any, Any]]:
    """Every place in it, however deep, where a value stands."""
    keys: Any = list(body) if isinstance(body, dict) else range(len(body))
    inner = [_places(body[key]) for key in keys if isinstance(body[key], dict | list)]
    return [*((body, key) for key in keys), *(place for places in inner for place in places)]
