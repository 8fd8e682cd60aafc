"""What the wake-up costs those who commit: as many as can, with it and without it, while somebody listens."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks.databases import bare_connection
from benchmarks.relay.processes import children
from outbox_kernel.infrastructure.relay.settings import CHANNEL

if TYPE_CHECKING:
    from benchmarks.relay.ground import Ground
    from benchmarks.relay.sizes import Sizes

COMMITTERS = 32


async def measure_writers(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Commit in short slices, one with and one without in each pair."""
    await ground.renew(0)
    task = {
        "kind": "committing.writers",
        "url": ground.url,
        "committers": COMMITTERS,
        "slices": sizes.slices,
        "seconds": sizes.slice_seconds,
    }
    listening = await bare_connection(ground.url)
    try:
        await listening.add_listener(CHANNEL, _hear)
        async with children(task) as family:
            [rates] = await family.reports()
    finally:
        await listening.close()
    pairs = zip(rates["with"], rates["without"], strict=True)
    return {
        "commits_per_s": round(statistics.median(rates["with"])),
        "commits_per_s_without": round(statistics.median(rates["without"])),
        "ratio": round(statistics.median(told / untold for told, untold in pairs), 3),
        "committers": COMMITTERS,
    }


def _hear(*_: object) -> None:
    """Listen, as a relay does."""
