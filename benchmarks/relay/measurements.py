"""All measurements of the relay, by name."""

from __future__ import annotations

import os
import platform
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks.databases import measured_database
from benchmarks.relay.backlog import measure_backlog
from benchmarks.relay.drain import measure_drain, measure_fanout, measure_hot
from benchmarks.relay.effects import measure_effects, measure_effects_batch
from benchmarks.relay.ground import prepared
from benchmarks.relay.latency import measure_latency
from benchmarks.relay.looking import measure_looking
from benchmarks.relay.loop import measure_loop
from benchmarks.relay.outage import measure_outage
from benchmarks.relay.pinned import measure_pinned
from benchmarks.relay.scale import measure_scale
from benchmarks.relay.sizes import FULL, SHORT
from benchmarks.relay.slow import measure_slow
from benchmarks.relay.watched import measure_metrics
from benchmarks.relay.writers import measure_writers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from benchmarks.relay.ground import Ground
    from benchmarks.relay.sizes import Sizes

MEASUREMENTS: dict[str, Callable[[Ground, Sizes], Awaitable[dict[str, Any]]]] = {
    "drain": measure_drain,
    "hot": measure_hot,
    "fanout": measure_fanout,
    "metrics": measure_metrics,
    "effects": measure_effects,
    "effects_batch": measure_effects_batch,
    "latency": measure_latency,
    "writers": measure_writers,
    "slow": measure_slow,
    "backlog": measure_backlog,
    "pinned": measure_pinned,
    "scale": measure_scale,
    "outage": measure_outage,
    "loop": measure_loop,
    "looking": measure_looking,
}


async def run(*, short: bool = False, only: Collection[str] = ()) -> dict[str, Any]:
    """Measure all, or only what is named, and return the figures by name."""
    figures: dict[str, Any] = {}
    async with measured_database() as url, prepared(url) as ground:
        figures["machine"] = await _machine(ground)
        for name, measure in MEASUREMENTS.items():
            if not only or name in only:
                figures[name] = await measure(ground, SHORT if short else FULL)
    return figures


async def _machine(ground: Ground) -> dict[str, Any]:
    """What the figures depend on; a load at the start means that others were at work."""
    return {
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "uvloop": find_spec("uvloop") is not None,
        "postgresql": await ground.ask("SHOW server_version"),
    }
