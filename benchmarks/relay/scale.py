"""What more relays bring, all of them there and each with its share before the events come."""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.relay.draining import interleaved
from benchmarks.relay.processes import children

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.relay.ground import Ground
    from benchmarks.relay.sizes import Sizes

SHARED = """
SELECT count(*) = {relays} AND max(cursors) - min(cursors) <= 1 AND count(lease_relay) = {relays}
FROM (SELECT lease_relay, count(*) AS cursors FROM outbox_cursors GROUP BY lease_relay) AS shares
"""


async def measure_scale(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Deliver with one relay and with more, to handlers that wait and to handlers that do nothing."""
    figures: dict[str, float] = {}
    for name, handler, events in (
        ("slow", "bench.pause", sizes.slow_events),
        ("drain", "bench.ignore", sizes.drain_events),
    ):
        sides = {number: partial(_rate, ground, handler, events, number) for number in sizes.relays}
        figures |= _told(name, await interleaved(sides, sizes.repetitions))
    return figures


def _told(name: str, found: Mapping[int, Sequence[float]]) -> dict[str, float]:
    """Tell the rates of so many relays, and what they are to one's."""
    rates = {number: median(each) for number, each in found.items()}
    ratios = {number: rate / rates[1] for number, rate in rates.items() if number > 1}
    return {
        **{f"{name}_{number}_events_per_s": round(rate) for number, rate in rates.items()},
        **{f"{name}_{number}_ratio": round(ratio, 3) for number, ratio in ratios.items()},
    }


async def _rate(ground: Ground, handler: str, events: int, relays: int) -> float:
    """Return the events per second from their commit on."""
    await ground.renew(0)
    task = {"kind": "relaying.relay", "url": ground.url, "handler": handler}
    async with children(*[task] * relays) as family:
        await ground.until(SHARED.format(relays=relays))
        await ground.add(events, first=0)
        begun = time.monotonic_ns()
        await family.until_marked(events)
        return events / (family.last_mark_ns - begun) * 1e9
