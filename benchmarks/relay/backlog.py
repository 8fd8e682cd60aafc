"""What an event costs when the table is large, and how much memory a relay takes before a large backlog."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from benchmarks.databases import database_on
from benchmarks.relay.draining import drain, interleaved, median_of
from benchmarks.relay.ground import prepared
from benchmarks.relay.processes import children

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.relay.draining import Drain
    from benchmarks.relay.ground import Ground
    from benchmarks.relay.sizes import Sizes


async def measure_backlog(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Drain the same number of events in a large and in a small table, then begin with a large backlog."""
    async with database_on(ground.url) as url, prepared(url) as small:
        await ground.renew(sizes.backlog_delivered)
        await ground.vacuum()
        await drain(_task(ground), sizes.backlog_delivered)
        firsts = count(sizes.backlog_delivered, sizes.backlog_pending)
        sides = {
            "large": partial(_drained_in_large, ground, sizes.backlog_pending, firsts),
            "small": partial(_drained_in_small, small, sizes.backlog_pending),
        }
        # To fill it has the server begin a checkpoint, after which each page's first change is logged as a whole
        # page. So a round of each goes before.
        await interleaved(sides, sizes.backlog_warm_ups)
        found = await interleaved(sides, sizes.repetitions)
    large, small_ = (1e6 / median_of(found[side], "events_per_s") for side in ("large", "small"))
    return {
        "us_per_event": round(large, 1),
        "us_per_event_in_small_table": round(small_, 1),
        "ratio": round(large / small_, 3),
        "peak_mb": round(await _peak_mb(ground, sizes), 1),
    }


async def _drained_in_large(ground: Ground, events: int, firsts: Iterator[int]) -> Drain:
    await ground.fill(events, first=next(firsts))
    return await drain(_task(ground), events)


async def _drained_in_small(ground: Ground, events: int) -> Drain:
    await ground.renew(events)
    return await drain(_task(ground), events)


async def _peak_mb(ground: Ground, sizes: Sizes) -> float:
    await ground.renew(sizes.backlog_waiting)
    async with children(_task(ground)) as family:
        await family.until_marked(1)
        await asyncio.sleep(sizes.backlog_drain_seconds)
        [report] = await family.end()
    return float(report["peak_mb"])


def _task(ground: Ground) -> dict[str, Any]:
    return {"kind": "relaying.relay", "url": ground.url, "handler": "bench.ignore"}
