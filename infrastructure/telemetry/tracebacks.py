"""What a log line tells of an exception: never more than somebody reads, and nothing twice within a minute.

Where a database is away, hundreds of requests or runs fail in one place, each with the same traceback of 13 kB. The
first is told whole; each of the others is a line that says which it is, and how often it came since.
"""

from __future__ import annotations

import time
from traceback import TracebackException, walk_tb
from typing import TYPE_CHECKING, Any

from outbox_kernel.infrastructure.plain_text import count
from outbox_kernel.infrastructure.telemetry.limits import (
    AGAIN_SECONDS,
    EXCEPTION_CHARACTERS_MAX,
    FRAMES_MAX,
    PLACES_MAX,
    TRACEBACK_LINE_CHARACTERS_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def cut(text: str, characters_max: int = EXCEPTION_CHARACTERS_MAX) -> str:
    """Leave out the middle of what is too long, and say how much that was."""
    if len(text) <= characters_max:
        return text
    half = characters_max // 2
    return f"{text[:half]} […{len(text) - 2 * half:,} characters cut…] {text[-half:]}"


class Tracebacks:
    """Those of one log."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        # When each was last told whole, and how often it came since.
        self._told: dict[tuple[object, ...], tuple[float, int]] = {}

    def told(self, info: ExcInfo) -> str:
        """Write it whole, or say in a line that it came again."""
        kind, error, traceback = info
        if kind is None or error is None:
            return "NoneType: None"
        # The whole way there, since many ways end in the one line of a library.
        way = tuple((frame.f_code.co_filename, line) for frame, line in walk_tb(traceback))
        key = (kind, way)
        since, times = self._told.get(key, (0.0, 0))
        if key in self._told and self._now() - since < AGAIN_SECONDS:
            self._told[key] = since, times + 1
            said = cut(_text_of(error).partition("\n")[0], TRACEBACK_LINE_CHARACTERS_MAX)
            again = f"again, {count(times + 1, 'time')} since its traceback"
            return f"{kind.__qualname__}: {said} ({_place(way)}, {again})"
        self._make_place()
        self._told[key] = self._now(), 0
        return cut("".join(_lines(error, traceback)).rstrip("\n"))

    def _make_place(self) -> None:
        if len(self._told) >= PLACES_MAX:
            del self._told[min(self._told, key=lambda key: self._told[key][0])]


def _place(way: Sequence[tuple[str, int]]) -> str:
    """Say where it was raised: the innermost line."""
    return "raised nowhere" if not way else f"raised at {way[-1][0]}:{way[-1][1]}"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever it does when it is asked, its line is to be written
        return "<no text>"


def _lines(error: BaseException, traceback: TracebackType | None) -> Iterator[str]:
    told: Any = TracebackException(type(error), error, traceback, limit=-FRAMES_MAX, compact=True)
    for line in told.format():
        yield cut(line, TRACEBACK_LINE_CHARACTERS_MAX)
