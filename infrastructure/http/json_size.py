"""How much a JSON text holds, counted before it is read: a megabyte of brackets is half a million objects.

Texts within it are taken out first, so that their commas and brackets count for nothing. All of it is done by a few
passes of Python's own C, whatever the text says; of one that is no JSON it tells what reading it could come to.
"""

from __future__ import annotations

from outbox_kernel.infrastructure.http.limits import JSON_LEVELS_MAX
from outbox_kernel.infrastructure.http.problems import Problem, Refused

_OPENING, _CLOSING = b"[{", b"]}"
_NO_BRACKETS = bytes(set(range(256)) - {*_OPENING, *_CLOSING})


def check_size(body: bytes, values_max: int) -> None:
    """Raise Refused for a text that holds more values, or nests them deeper, than anybody here reads."""
    # The body of most requests has so little of all that it need not be looked at more closely.
    if _openings(body) + body.count(b",") < min(values_max, JSON_LEVELS_MAX):
        return
    outside = _outside_texts(body, values_max)
    if outside is None or _openings(outside) + outside.count(b",") >= values_max:
        raise Refused(
            Problem(
                413, "too_many_values", f"the body holds more than {values_max:,} values: send fewer at once"
            )
        )
    if _levels(outside) > JSON_LEVELS_MAX:
        raise Refused(
            Problem(
                400, "too_deep", f"the body is nested more than {JSON_LEVELS_MAX} levels deep: nest it less"
            )
        )


def _openings(text: bytes) -> int:
    return sum(text.count(bytes([bracket])) for bracket in _OPENING)


def _outside_texts(body: bytes, values_max: int) -> bytes | None:
    """Return what stands outside of texts; None if there are more texts than there may be values and names of them."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 4 * values_max:
        return None
    return b"".join(plain.split(b'"')[::2])


def _levels(outside: bytes) -> int:
    level = deepest = 0
    for bracket in outside.translate(None, _NO_BRACKETS):
        level += 1 if bracket in _OPENING else -1
        deepest = max(deepest, level)
    return deepest
