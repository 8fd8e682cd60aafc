"""Retry schedules: how long to wait after the n-th failure, or that it was the last (K7)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

JITTER_SHARE = 0.1


def is_number(value: object) -> bool:
    """Tell whether a value counts something, which True and False do not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_tuple(delays: Iterable[float]) -> tuple[float, ...]:
    try:
        return tuple(delays)
    except TypeError:
        raise ValueError(f"a RetrySchedule takes its delays in a tuple, not {delays!r}") from None


@attrs.frozen
class RetrySchedule:
    """Delays in seconds after failure 1, 2, …; the last one repeats until `dead_at` failures, if ever."""

    delays_seconds: tuple[float, ...] = attrs.field(converter=_as_tuple)
    dead_at: int | None = None
    jitter_share: float = JITTER_SHARE

    def __attrs_post_init__(self) -> None:
        """Refuse a schedule that cannot be followed."""
        delays = self.delays_seconds
        if not delays or not all(is_number(delay) and 0 <= delay < float("inf") for delay in delays):
            raise ValueError("a RetrySchedule needs at least one delay, each zero or more finite seconds")
        if self.dead_at is not None and (type(self.dead_at) is not int or self.dead_at < 1):
            raise ValueError(f"a RetrySchedule is dead at failure 1 or later, not {self.dead_at!r}")
        if not 0 <= self.jitter_share <= 1:
            raise ValueError(f"jitter_share is a share of the delay from 0 to 1, not {self.jitter_share}")

    @classmethod
    def bounded(cls, failures: int) -> RetrySchedule:
        """EXPONENTIAL's delays, dead at the given failure."""
        return attrs.evolve(EXPONENTIAL, dead_at=failures)

    def delay_after(self, failures: int, *, rng: Callable[[], float] = random.random) -> float | None:
        """Return the seconds to wait after so many failures, or None: dead. Jitter only lengthens."""
        if type(failures) is not int or failures < 0:
            raise ValueError(f"failures are counted from 0, not {failures!r}")
        if self.dead_at is not None and failures >= self.dead_at:
            return None
        if failures == 0:
            return 0.0
        delay = self.delays_seconds[min(failures, len(self.delays_seconds)) - 1]
        return delay * (1 + self.jitter_share * rng())


EXPONENTIAL = RetrySchedule((1, 2, 5, 15, 60, 300, 900))
TIERED = RetrySchedule((0, 0, 0, 30, 30, 30, 300, 300, 300), dead_at=10)
