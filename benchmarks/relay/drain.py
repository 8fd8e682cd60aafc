"""How fast one relay hands events to a handler that does nothing, against claim and mark by hand."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.relay.draining import drain, interleaved, median_of
from benchmarks.relay.sizes import AGGREGATES, HOT_AGGREGATES

if TYPE_CHECKING:
    from benchmarks.relay.draining import Drain
    from benchmarks.relay.ground import Ground
    from benchmarks.relay.sizes import Sizes


async def measure_drain(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Drain events of many aggregates."""
    found = await interleaved(
        {
            "relay": partial(_relayed, ground, sizes.drain_events, AGGREGATES),
            "raw": partial(_by_hand, ground, sizes.drain_events),
        },
        sizes.repetitions,
    )
    rate, raw = (median_of(found[side], "events_per_s") for side in ("relay", "raw"))
    return {
        "events_per_s": round(rate),
        "raw_events_per_s": round(raw),
        "ratio": round(rate / raw, 3),
        "cpu_us_per_event": round(median_of(found["relay"], "cpu_us_per_event"), 1),
        "raw_cpu_us_per_event": round(median_of(found["raw"], "cpu_us_per_event"), 1),
    }


async def measure_hot(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Drain as many events of few aggregates, against those of many."""
    found = await interleaved(
        {
            "many": partial(_relayed, ground, sizes.drain_events, AGGREGATES),
            "few": partial(_relayed, ground, sizes.drain_events, HOT_AGGREGATES),
        },
        sizes.repetitions,
    )
    rate, drained = (median_of(found[side], "events_per_s") for side in ("few", "many"))
    return {
        "events_per_s": round(rate),
        "drain_events_per_s": round(drained),
        "ratio_to_drain": round(rate / drained, 3),
        "cpu_us_per_event": round(median_of(found["few"], "cpu_us_per_event"), 1),
    }


async def _relayed(ground: Ground, events: int, aggregates: int) -> Drain:
    await ground.renew(events, aggregates=aggregates)
    return await drain({"kind": "relaying.relay", "url": ground.url, "handler": "bench.ignore"}, events)


async def _by_hand(ground: Ground, events: int) -> Drain:
    await ground.renew(events)
    return await drain({"kind": "floors.bare_drain", "url": ground.dsn}, events)
