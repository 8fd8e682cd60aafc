"""A drain: processes take what is in the outbox until nothing is left; and how often it is repeated."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import frozen

from benchmarks.relay.processes import MeasurementFailed, children

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

K = TypeVar("K")
T = TypeVar("T")


@frozen
class Drain:
    """What it came to, from the first read to the last place that was written down."""

    events: int
    seconds: float
    cpu_seconds: float
    wal_bytes: int = 0
    """What the server has logged meanwhile."""
    begun_ns: int = 0
    """When it began, on the monotonic clock."""

    def has(self, moment_ns: int) -> bool:
        """Whether that was while it was under way."""
        return 0 <= moment_ns - self.begun_ns <= self.seconds * 1e9

    @property
    def events_per_s(self) -> float:
        """How fast it was."""
        return self.events / self.seconds

    @property
    def cpu_us_per_event(self) -> float:
        """What each event cost the processes."""
        return self.cpu_seconds / self.events * 1e6

    @property
    def wal_bytes_per_event(self) -> float:
        """What each event added to the write-ahead log."""
        return self.wal_bytes / self.events

    @property
    def cpu_share(self) -> float:
        """How much of one core they took."""
        return self.cpu_seconds / self.seconds


async def drain(task: dict[str, Any], events: int, *, processes: int = 1) -> Drain:
    """Have the outbox drained."""
    async with children(*[task] * processes) as family:
        await family.until_marked(events)
        reports = [each for each in await family.end() if each["begun_ns"] and each["ended_ns"]]
        if family.marked != events:
            raise MeasurementFailed(f"{family.marked} events were marked, of {events} that there were")
    begun = min(each["begun_ns"] for each in reports)
    ended = max(each["ended_ns"] for each in reports)
    cpu_seconds = sum(each["cpu_seconds"] for each in reports)
    return Drain(events, (ended - begun) / 1e9, cpu_seconds, begun_ns=begun)


async def interleaved(sides: Mapping[K, Callable[[], Awaitable[T]]], repetitions: int) -> dict[K, list[T]]:
    """Measure each side once per repetition, the order turned round each time."""
    found: dict[K, list[T]] = {name: [] for name in sides}
    for number in range(repetitions):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            found[name].append(await sides[name]())
    return found


def median_of(drains: Sequence[Drain], figure: str) -> float:
    """Return the median of one figure of some drains."""
    return float(statistics.median(getattr(each, figure) for each in drains))
