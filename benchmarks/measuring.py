"""How things are timed: interleaved, in changing order, many times, and told as medians."""

from __future__ import annotations

import gc
import random
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

WARM_UP_ROUNDS = 50


async def interleaved_medians_us(
    scenarios: Mapping[str, Callable[[], Awaitable[None]]], rounds: int, *, seed: int = 1
) -> dict[str, float]:
    """Run every scenario once per round, in an order drawn anew each round; return each one's median in µs.

    What disturbs the machine for a while then disturbs all scenarios alike, and none always runs after
    the same neighbour.
    """
    order, rng = list(scenarios), random.Random(seed)  # noqa: S311 - nobody gains by guessing it
    samples: dict[str, list[int]] = {name: [] for name in scenarios}
    for number in range(-WARM_UP_ROUNDS, rounds):
        rng.shuffle(order)
        for name in order:
            elapsed = await _time_ns(scenarios[name])
            if number >= 0:
                samples[name].append(elapsed)
    return {name: statistics.median(samples[name]) / 1_000 for name in scenarios}


async def _time_ns(scenario: Callable[[], Awaitable[None]]) -> int:
    # A collection that one scenario's garbage brings about must not fall into another's time.
    gc.disable()
    try:
        start = time.perf_counter_ns()
        await scenario()
        return time.perf_counter_ns() - start
    finally:
        gc.enable()
