"""How fast one relay hands events to handlers that do nothing, against bare reading with the place saved."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from benchmarks.relay.draining import drain, interleaved, median_of
from benchmarks.relay.sizes import AGGREGATES, HANDLERS, HOT_AGGREGATES

if TYPE_CHECKING:
    from benchmarks.relay.draining import Drain
    from benchmarks.relay.ground import Ground
    from benchmarks.relay.sizes import Sizes


async def measure_drain(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Drain events of many aggregates."""
    found = await interleaved(
        {
            "relay": partial(_relayed, ground, sizes.drain_events),
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
        "wal_bytes_per_event": round(median_of(found["relay"], "wal_bytes_per_event"), 1),
    }


async def measure_hot(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Drain as many events of few aggregates, against those of many."""
    found = await interleaved(
        {
            "many": partial(_relayed, ground, sizes.drain_events),
            "few": partial(_relayed, ground, sizes.drain_events, aggregates=HOT_AGGREGATES),
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


async def measure_fanout(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Drain as many events with several handlers for each, against one."""
    found = await interleaved(
        {
            "one": partial(_relayed, ground, sizes.drain_events),
            "several": partial(_relayed, ground, sizes.drain_events, copies=HANDLERS),
        },
        sizes.repetitions,
    )
    rate, drained = (median_of(found[side], "events_per_s") for side in ("several", "one"))
    return {
        "runs_per_s": round(rate),
        "drain_events_per_s": round(drained),
        "ratio_to_drain": round(rate / drained, 3),
        "cpu_us_per_run": round(median_of(found["several"], "cpu_us_per_event"), 1),
        "handlers": HANDLERS,
    }


async def _relayed(ground: Ground, events: int, *, aggregates: int = AGGREGATES, copies: int = 1) -> Drain:
    await ground.renew(events, aggregates=aggregates)
    before = await ground.written_bytes()
    task = {"kind": "relaying.relay", "url": ground.url, "handler": "bench.ignore", "copies": copies}
    found = await drain(task, events * copies)
    return attrs.evolve(found, wal_bytes=await ground.written_bytes(since=before))


async def _by_hand(ground: Ground, events: int) -> Drain:
    await ground.renew(events)
    return await drain({"kind": "floors.bare_drain", "url": ground.dsn}, events)
