"""A clock that stands still until it is told to move, and ids that are the same in every run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from outbox_kernel.kernel.clock import uuid7_of

if TYPE_CHECKING:
    from uuid import UUID

START = datetime(2025, 1, 1, 12, 0, tzinfo=UTC)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICKS_PER_MILLISECOND = 4096


class FrozenClock:
    """Tells one moment and counts its ids; `with using_clock(FrozenClock()) as clock: …`.

    The ids are UUIDs of version 7 in ascending order, as the system's are; another `seed` gives others.
    """

    def __init__(self, moment: datetime = START, *, seed: int = 0) -> None:
        self._last_tick = 0
        self._seed = seed
        self.set(moment)

    def now(self) -> datetime:
        """Return the moment at which the clock stands."""
        return self._now

    def new_id(self) -> UUID:
        """Return the next identifier."""
        milliseconds = (self._now - _EPOCH) // timedelta(milliseconds=1)
        self._last_tick = max(milliseconds * _TICKS_PER_MILLISECOND, self._last_tick + 1)
        return uuid7_of(self._last_tick, self._seed)

    def advance(self, seconds: float | timedelta) -> datetime:
        """Move the clock on by so many seconds, or a timedelta, and return the moment it then tells."""
        step = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        return self.set(self._now + step)

    def set(self, moment: datetime) -> datetime:
        """Put the clock to a moment, earlier ones included; ids go on ascending."""
        if moment.utcoffset() is None:
            raise ValueError(f"a clock is set to an aware datetime, not to {moment!r}; give it a time zone")
        self._now = moment.astimezone(UTC)
        return self._now
