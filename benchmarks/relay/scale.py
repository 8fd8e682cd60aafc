"""What more relays bring, and how much write-ahead log a delivery costs."""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING

from attrs import frozen

from benchmarks.relay.draining import Drain, drain, interleaved, median_of
from benchmarks.relay.slow import drain_slowly

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.relay.ground import Ground
    from benchmarks.relay.sizes import Sizes


@frozen
class LoggedDrain(Drain):
    """A drain with what it has written to the log."""

    wal_bytes: int

    @property
    def wal_bytes_per_event(self) -> float:
        """What each event added."""
        return self.wal_bytes / self.events


async def measure_scale(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Drain with one relay and with more, to handlers that wait and to handlers that do nothing."""
    slow = await interleaved(
        {number: partial(drain_slowly, ground, sizes.slow_events, number) for number in sizes.relays},
        sizes.repetitions,
    )
    quick = await interleaved(
        {number: partial(_logged, ground, sizes.drain_events, number) for number in sizes.relays},
        sizes.repetitions,
    )
    bytes_each = statistics.median(each.wal_bytes_per_event for each in quick[1])
    return {
        **_rates("slow", slow),
        **_rates("drain", quick),
        "wal_bytes_per_event": round(bytes_each),
    }


def _rates(name: str, found: Mapping[int, Sequence[Drain]]) -> dict[str, float]:
    """Tell the rates of so many relays, and what they are to one's."""
    rates = {number: median_of(drains, "events_per_s") for number, drains in found.items()}
    return {
        **{f"{name}_{number}_events_per_s": round(rate) for number, rate in rates.items()},
        **{
            f"{name}_{number}_ratio": round(rate / rates[1], 3)
            for number, rate in rates.items()
            if number > 1
        },
    }


async def _logged(ground: Ground, events: int, processes: int) -> LoggedDrain:
    await ground.renew(events)
    before = await ground.written_bytes()
    task = {"kind": "relaying.relay", "url": ground.url, "handler": "bench.ignore"}
    found = await drain(task, events, processes=processes)
    written = await ground.written_bytes(since=before)
    return LoggedDrain(found.events, found.seconds, found.cpu_seconds, written)
