"""What it costs when a publisher's broker is away: nothing is to be written for it, and all is to be caught up with."""

from __future__ import annotations

import statistics
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import attrs

from benchmarks.relay.draining import interleaved
from benchmarks.relay.processes import children
from benchmarks.relay.publishing import AWAY, BACK, CHANNEL
from outbox_kernel.infrastructure.relay.limits import IDLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.relay.ground import Ground
    from benchmarks.relay.processes import Children
    from benchmarks.relay.sizes import Sizes

# The last of what comes before is on its way when the broker goes.
EVENTS_BEFORE = 100
EVENTS_EACH = 1_000
SUBSCRIBED = "SELECT count(*) > 0 FROM outbox_cursors"
PAUSED = "SELECT bool_or(pauses <> '{}') FROM outbox_relays"
# A place that was read before the broker went, and brought nothing, is written within a second.
RESTS = f"SELECT max(recorded_at) < now() - interval '{2 * IDLE_SECONDS} seconds' FROM outbox_progress"  # noqa: S608 - ours


@attrs.frozen
class CaughtUp:
    """How a publisher went through what was waiting for its broker."""

    events_per_s: float
    rows: int = 0
    """Written of deliveries and progress while the broker was away."""
    noticed_seconds: float = 0.0
    """From the moment when the broker was back to the first event that was sent."""


async def measure_outage(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Publish as many events to a broker that is there, and to one that was away while they were committed."""
    found = await interleaved(
        {
            "there": partial(_published, ground, sizes.outage_events),
            "away": partial(_caught_up, ground, sizes.outage_events),
        },
        sizes.repetitions,
    )
    caught_up, there = (
        statistics.median(each.events_per_s for each in found[side]) for side in ("away", "there")
    )
    return {
        "events_per_s": round(caught_up),
        "publish_events_per_s": round(there),
        "ratio": round(caught_up / there, 3),
        "rows_written": max(each.rows for each in found["away"]),
        "noticed_s": round(statistics.median(each.noticed_seconds for each in found["away"]), 3),
    }


async def _published(ground: Ground, events: int) -> CaughtUp:
    await ground.renew(0)
    async with _publisher(ground) as relay:
        await ground.add(events, first=0)
        await relay.until_marked(events)
        [report] = await relay.end()
    return CaughtUp(_rate(report, events))


async def _caught_up(ground: Ground, events: int) -> CaughtUp:
    await ground.renew(0)
    async with _publisher(ground) as relay:
        await ground.add(EVENTS_BEFORE, first=0)
        await relay.until_marked(EVENTS_BEFORE)
        await ground.notify(CHANNEL, AWAY)
        await ground.add(1, first=EVENTS_BEFORE)
        await ground.until(PAUSED)
        await ground.until(RESTS)
        before = await ground.rows_of_progress()
        for first in range(0, events, EVENTS_EACH):
            await ground.add(min(EVENTS_EACH, events - first), first=first + EVENTS_BEFORE + 1)
        written = before ^ await ground.rows_of_progress()
        back_ns = time.monotonic_ns()
        await ground.notify(CHANNEL, BACK)
        await relay.until_marked(EVENTS_BEFORE + 1 + events)
        [report] = await relay.end()
    return CaughtUp(_rate(report, events + 1), len(written), (report["begun_ns"] - back_ns) / 1e9)


def _rate(report: dict[str, int], events: int) -> float:
    return events / (report["ended_ns"] - report["begun_ns"]) * 1e9


@asynccontextmanager
async def _publisher(ground: Ground) -> AsyncIterator[Children]:
    async with children({"kind": "publishing.publish", "url": ground.url}) as relay:
        await ground.until(SUBSCRIBED)
        yield relay
