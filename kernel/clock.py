"""Time and identifiers, in one place so that a test can hold both still."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock(Protocol):
    """Tells the time and gives out event ids."""

    def now(self) -> datetime:
        """Return the present moment, aware and in UTC."""

    def new_id(self) -> UUID:
        """Return a fresh identifier that sorts after all earlier ones."""


C = TypeVar("C", bound=Clock)


class SystemClock:
    """The machine's time and RFC 9562 version 7 identifiers."""

    def __init__(self) -> None:
        self._last_tick = 0
        self._turn = Lock()

    def now(self) -> datetime:
        """Return the machine's time in UTC."""
        return datetime.now(UTC)

    def new_id(self) -> UUID:
        """Return a UUIDv7 that is greater than every earlier one of this process."""
        # Method 3 of RFC 9562: the 12 bits after the millisecond hold its fraction. A tick is a
        # 4096th of a millisecond; never repeating one keeps ids in order of creation.
        with self._turn:
            tick = self._last_tick = max(time.time_ns() * 4096 // 1_000_000, self._last_tick + 1)
        return uuid7_of(tick, int.from_bytes(os.urandom(8), "big"))


def uuid7_of(tick: int, entropy: int) -> UUID:
    """Lay out a UUIDv7 from 4096ths of a millisecond since 1970 and 62 random bits."""
    milliseconds, fraction = divmod(tick, 4096)
    return UUID(int=(milliseconds << 80) | (7 << 76) | (fraction << 64) | (2 << 62) | (entropy & (2**62 - 1)))


_clock: Clock = SystemClock()


def now() -> datetime:
    """Return the present moment by the clock in use."""
    return _clock.now()


def new_id() -> UUID:
    """Return a fresh identifier by the clock in use."""
    return _clock.new_id()


@contextmanager
def using_clock(clock: C) -> Iterator[C]:
    """Let `clock` tell the time and give the ids in this process until the block ends; for tests."""
    global _clock  # noqa: PLW0603 - the one seam through which a test holds time still
    previous, _clock = _clock, clock
    try:
        yield clock
    finally:
        _clock = previous
