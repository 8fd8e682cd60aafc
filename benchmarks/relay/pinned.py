"""What a forgotten transaction costs the relay: what nobody may clear away, and a commit far below all others.

Two databases of one server are churned at once, at the same rate. In one of them a snapshot is held, so that
nothing that dies there can be cleared away; then both drain bursts, one after the other.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import attrs

from benchmarks.databases import database_on
from benchmarks.relay.draining import interleaved
from benchmarks.relay.ground import prepared, transaction_held
from benchmarks.relay.processes import children

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.relay.ground import Ground
    from benchmarks.relay.processes import Children
    from benchmarks.relay.sizes import Sizes

CHURN_EVERY_SECONDS = 0.05
LATE_SECONDS_MAX = 30.0


async def measure_pinned(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Churn with and without a snapshot held, then see how fast each drains."""
    async with database_on(ground.url) as url, prepared(url) as other:
        await ground.empty()
        async with _churned(other) as free, _churned(ground) as pinned, transaction_held(ground.url):
            position = await ground.take_position()
            await asyncio.gather(free.churn(sizes), pinned.churn(sizes))
            late = await pinned.delivers_late(position)
            rates = await interleaved(
                {"with": partial(pinned.burst, sizes), "without": partial(free.burst, sizes)},
                sizes.repetitions,
            )
        dead = await ground.dead_rows()
    held, not_held = (statistics.median(rates[side]) for side in ("with", "without"))
    return {
        "sustainable_rate_with": round(held),
        "sustainable_rate_without": round(not_held),
        "ratio": round(held / not_held, 3),
        "dead_tuples": dead,
        "late_delivered": late,
    }


@attrs.define(eq=False)
class Churned:
    """A database in which events come and are delivered all the time."""

    ground: Ground
    relay: Children
    added: int = 0

    async def churn(self, sizes: Sizes) -> None:
        """Add events at a fixed rate, and wait until the relay has them all."""
        begun, total = time.monotonic(), round(sizes.churn_seconds * sizes.churn_per_s)
        while self.added < total:
            due = min(total, round((time.monotonic() - begun) * sizes.churn_per_s) + 1)
            await self._add(due - self.added)
            await asyncio.sleep(CHURN_EVERY_SECONDS)
        await self.relay.until_marked(self.added)

    async def burst(self, sizes: Sizes) -> float:
        """Return the events per second at which the relay takes many at once."""
        await self.ground.vacuum()
        await self._add(sizes.burst_events)
        begun = time.monotonic_ns()
        await self.relay.until_marked(self.added)
        return sizes.burst_events / (self.relay.last_mark_ns - begun) * 1e9

    async def delivers_late(self, position: int) -> bool:
        """Commit below all that is delivered; tell whether that is delivered too."""
        self.added += 1
        await self.ground.commit_late(position)
        try:
            async with asyncio.timeout(LATE_SECONDS_MAX):
                await self.relay.until_marked(self.added)
        except TimeoutError:
            return False
        return True

    async def _add(self, events: int) -> None:
        await self.ground.add(events, first=self.added)
        self.added += events


@asynccontextmanager
async def _churned(ground: Ground) -> AsyncIterator[Churned]:
    async with children({"kind": "relaying.relay", "url": ground.url, "handler": "bench.ignore"}) as relay:
        yield Churned(ground, relay)
