"""How fast handlers add a row each, with its receipt, through a unit of work, against the same by hand."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.relay.draining import drain, interleaved, median_of
from benchmarks.relay.parcels import BATCH

if TYPE_CHECKING:
    from benchmarks.relay.draining import Drain
    from benchmarks.relay.ground import Ground
    from benchmarks.relay.sizes import Sizes

# As many connections as handlers run at once, on both sides. A server of the usual 100 connections has no room
# for the hundred handlers that ship.
CONCURRENCY = 20


async def measure_effects(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Drain events to a handler that writes and commits for each."""
    return await _compared(ground, sizes, "bench.book")


async def measure_effects_batch(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Drain events to a handler that writes and commits for many at once; the floor commits for each."""
    return {**await _compared(ground, sizes, "bench.book_batch"), "batch": BATCH}


async def _compared(ground: Ground, sizes: Sizes, handler: str) -> dict[str, float]:
    relay = {"kind": "relaying.relay", "url": ground.url, "handler": handler, "concurrency": CONCURRENCY}
    by_hand = {"kind": "floors.bare_effects", "url": ground.dsn, "concurrency": CONCURRENCY}
    by_session = {**by_hand, "kind": "session_floor.session_effects"}
    found = await interleaved(
        {
            "relay": partial(_drained, ground, sizes.effect_events, relay),
            "raw": partial(_drained, ground, sizes.effect_events, by_hand),
            "session": partial(_drained, ground, sizes.effect_events, by_session),
        },
        sizes.repetitions,
    )
    rate, raw, session = (median_of(found[side], "events_per_s") for side in ("relay", "raw", "session"))
    return {
        "events_per_s": round(rate),
        "raw_events_per_s": round(raw),
        "session_events_per_s": round(session),
        "ratio": round(rate / raw, 3),
        "ratio_to_session": round(rate / session, 3),
        "cpu_us_per_event": round(median_of(found["relay"], "cpu_us_per_event"), 1),
        "raw_cpu_us_per_event": round(median_of(found["raw"], "cpu_us_per_event"), 1),
        "concurrency": CONCURRENCY,
        "pool_size": CONCURRENCY,
    }


async def _drained(ground: Ground, events: int, task: dict[str, Any]) -> Drain:
    await ground.renew(events)
    return await drain(task, events)
