"""How full the relay keeps its crew when each handler waits for something, against what so many could do at most."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.relay.draining import drain, interleaved, median_of
from benchmarks.relay.parcels import PAUSE_SECONDS
from outbox_kernel.infrastructure.relay import RelaySettings

if TYPE_CHECKING:
    from benchmarks.relay.draining import Drain
    from benchmarks.relay.ground import Ground
    from benchmarks.relay.sizes import Sizes


async def measure_slow(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Drain events to a handler that waits."""
    concurrency = RelaySettings().concurrency
    drained = partial(drain_slowly, ground, sizes.slow_events)
    found = (await interleaved({"relay": drained}, sizes.repetitions))["relay"]
    rate, most = median_of(found, "events_per_s"), concurrency / PAUSE_SECONDS
    return {
        "events_per_s": round(rate),
        "most_events_per_s": round(most),
        "ratio": round(rate / most, 3),
        "cpu_share": round(median_of(found, "cpu_share"), 3),
        "concurrency": concurrency,
    }


async def drain_slowly(ground: Ground, events: int, processes: int = 1) -> Drain:
    """Drain events to a handler that waits."""
    await ground.renew(events)
    task = {"kind": "relaying.relay", "url": ground.url, "handler": "bench.pause"}
    return await drain(task, events, processes=processes)
