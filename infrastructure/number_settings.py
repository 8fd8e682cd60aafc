"""Settings that are numbers: read from text and held within bounds, or one sentence that says what is wrong (R15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.limits import SHOWN_CHARACTERS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from attrs import Attribute


_ranges: dict[str, str] = {}
"""What each variable may be, as it is bounded: a text that is no number at all is told of it too."""


def between(variable: str, low: float, high: float) -> Callable[[object, Attribute[Any], float | None], None]:
    """Return a validator; None, where a field allows it, is no number."""
    span = _ranges[variable] = f" from {_told(low)} to {_told(high)}"

    def check(_: object, __: Attribute[Any], value: float | None) -> None:
        if value is not None and not low <= value <= high:
            raise BadSetting(variable, f"is {_told(value)}: give a number{span}")

    return check


def whole(variable: str, text: str, *, also: str = "") -> int:
    """Read a whole number; `also` is what else may stand there."""
    try:
        return int(text)
    except ValueError:
        raise _none(variable, text, "a whole number", also) from None


def number(variable: str, text: str, *, also: str = "") -> float:
    """Read a number; `also` is what else may stand there."""
    try:
        return float(text)
    except ValueError:
        raise _none(variable, text, "a number", also) from None


def _none(variable: str, text: str, what: str, also: str) -> BadSetting:
    return BadSetting(variable, f"is {_shortened(text)!r}: give {what}{_ranges.get(variable, '')}{also}")


def _told(value: float) -> str:
    # A whole number may be longer than any float.
    return _shortened(str(value)) if isinstance(value, int) else f"{value:g}"


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[: SHOWN_CHARACTERS_MAX - 1]}…"
