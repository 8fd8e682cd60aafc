"""How long after a commit its handler begins, in another process, against NOTIFY inside the transaction."""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.relay.draining import interleaved
from benchmarks.relay.ground import stored_payload
from benchmarks.relay.processes import children
from outbox_kernel.infrastructure.relay.settings import CHANNEL

if TYPE_CHECKING:
    from benchmarks.relay.ground import Ground
    from benchmarks.relay.sizes import Sizes

SPACING_SECONDS = 0.02
# Before these are over, connections are made and statements prepared.
WARM_UP_COMMITS = 25


async def measure_latency(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Commit now and then, and see how soon it is heard of."""
    rhythm = {"commits": WARM_UP_COMMITS + sizes.commits, "every": SPACING_SECONDS}
    bare = {"url": ground.dsn, "channel": CHANNEL}
    relay = {"kind": "relaying.relay", "url": ground.url, "handler": "bench.note_start"}
    captured = {"kind": "committing.captured_commits", "url": ground.url, **rhythm}
    listener = {"kind": "floors.bare_listener", **bare}
    committer = {"kind": "floors.bare_commits", **bare, **rhythm, "payload": stored_payload()}
    found = await interleaved(
        {
            "relay": partial(_delays_ms, ground, relay, captured),
            "floor": partial(_delays_ms, ground, listener, committer),
        },
        sizes.repetitions,
    )
    p50, floor_p50 = (_median_percentile(found[side], 50) for side in ("relay", "floor"))
    p99, floor_p99 = (_median_percentile(found[side], 99) for side in ("relay", "floor"))
    return {
        "p50_ms": round(p50, 3),
        "p99_ms": round(p99, 3),
        "floor_p50_ms": round(floor_p50, 3),
        "floor_p99_ms": round(floor_p99, 3),
        "ratio": round(p50 / floor_p50, 3),
    }


async def _delays_ms(ground: Ground, hearer: dict[str, Any], committer: dict[str, Any]) -> list[float]:
    await ground.renew(0)
    async with children(hearer) as hearing, children(committer) as committing:
        [committed] = await committing.reports()
        await hearing.until_marked(committer["commits"])
        [heard] = await hearing.end()
    begun = heard["moments_ns"]
    delays = [(begun[event] - moment) / 1e6 for event, moment in committed["moments_ns"].items()]
    return delays[WARM_UP_COMMITS:]


def _median_percentile(repetitions: list[list[float]], percent: int) -> float:
    return statistics.median(
        statistics.quantiles(delays, n=100, method="inclusive")[percent - 1] for delays in repetitions
    )
