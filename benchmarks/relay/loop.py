"""Application and relay together on one machine: how much they carry, and what little costs the server and the relay.

The loop is closed: who commits waits while too much is not delivered, so that what comes out is what can go on.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from benchmarks.relay.draining import interleaved
from benchmarks.relay.ground import stored_payload, transaction_held
from benchmarks.relay.processes import children
from benchmarks.relay.producing import COMMITTERS
from benchmarks.relay.server import server_cpu_seconds
from outbox_kernel.infrastructure.relay.settings import CHANNEL

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from benchmarks.relay.ground import Ground
    from benchmarks.relay.processes import Children
    from benchmarks.relay.sizes import Sizes

STEADY_PER_S = 800
LOW_PER_S = 10


@attrs.frozen
class Spent:
    """What was delivered up to a moment, and used of the processor."""

    seconds: float
    server_cpu_seconds: float | None
    events: int
    relay_cpu_seconds: float


@attrs.frozen
class Usage:
    """What a fixed rate took."""

    server_cores: float | None
    relay_ms_per_event: float

    @classmethod
    def between(cls, begun: Spent, ended: Spent) -> Usage:
        """Tell what was used between two moments."""
        server_cores, events = None, ended.events - begun.events
        if begun.server_cpu_seconds is not None and ended.server_cpu_seconds is not None:
            used = ended.server_cpu_seconds - begun.server_cpu_seconds
            server_cores = used / (ended.seconds - begun.seconds)
        relay_ms = (ended.relay_cpu_seconds - begun.relay_cpu_seconds) / events * 1e3 if events else 0.0
        return cls(server_cores, relay_ms)


@attrs.frozen
class Together:
    """What each rate took, and how many rows of the log were dead in the end."""

    usage: dict[int, Usage]
    dead_tuples: int = 0


async def measure_loop(ground: Ground, sizes: Sizes) -> dict[str, float | None]:
    """Commit and deliver as fast as it goes, then at rates that are nothing."""
    rates = await interleaved(
        {way: partial(_rate, ground, sizes, way) for way in ("emit", "new_aggregates")}, sizes.repetitions
    )
    found = await interleaved(
        {
            "free": partial(_together, ground, sizes),
            "held": partial(_together, ground, sizes, is_held=True),
            "alone": partial(_alone, ground, sizes),
            "bare": partial(_bare, ground, sizes),
            "bare_commits": partial(_bare_commits, ground, sizes),
        },
        sizes.repetitions,
    )
    return {
        **{f"{way}_events_per_s": round(statistics.median(each)) for way, each in rates.items()},
        "server_cores": _cores(found["free"]),
        "server_cores_beside_a_transaction": _cores(found["held"]),
        "server_cores_without_relay": _cores(found["alone"]),
        "server_cores_of_bare_commits": _cores(found["bare_commits"]),
        "relay_ms_per_event": _relay_ms(found["free"], STEADY_PER_S),
        "relay_ms_per_event_at_low_rate": _relay_ms(found["free"], LOW_PER_S),
        "bare_ms_per_event_at_low_rate": _relay_ms(found["bare"], LOW_PER_S),
        "dead_tuples": max(each.dead_tuples for each in found["free"] + found["held"]),
    }


def _cores(found: list[Together]) -> float | None:
    every = [each.usage[STEADY_PER_S].server_cores for each in found]
    known = [each for each in every if each is not None]
    return round(statistics.median(known), 3) if known else None


def _relay_ms(found: list[Together], per_s: int) -> float:
    return round(statistics.median(each.usage[per_s].relay_ms_per_event for each in found), 3)


async def _rate(ground: Ground, sizes: Sizes, way: str) -> float:
    """Return the events per second from the first commit's beginning to the last event's delivery."""
    await ground.renew(0)
    task = {"kind": "producing.in_a_closed_loop", "url": ground.url, "way": way, "events": sizes.loop_events}
    async with _relay(ground) as relay, children(task) as producing:
        await relay.until_marked(sizes.loop_events)
        [report] = await producing.end()
        begun_ns: int = report["begun_ns"]
        return sizes.loop_events / (relay.last_mark_ns - begun_ns) * 1e9


async def _together(ground: Ground, sizes: Sizes, *, is_held: bool = False) -> Together:
    """Commit and deliver at each rate, each event by itself, and see what server and relay use."""
    await ground.renew(0)
    stranger = transaction_held(ground.url) if is_held else nullcontext()
    async with stranger, _relay(ground) as relay:
        usage = {STEADY_PER_S: await _at_rate(ground, sizes, STEADY_PER_S, relay)}
        if not is_held:
            usage[LOW_PER_S] = await _at_rate(ground, sizes, LOW_PER_S, relay)
    return Together(usage, await ground.dead_rows())


async def _alone(ground: Ground, sizes: Sizes) -> Together:
    """Commit as much without a relay: what the server then uses is not the relay's."""
    await ground.renew(0)
    return Together({STEADY_PER_S: await _at_rate(ground, sizes, STEADY_PER_S)})


async def _bare(ground: Ground, sizes: Sizes) -> Together:
    """Follow the log by hand at the low rate: what a wake-up, a read and a write cost a process that sleeps between."""
    await ground.renew(0)
    async with children({"kind": "floors.bare_following", "url": ground.dsn, "channel": CHANNEL}) as floor:
        return Together({LOW_PER_S: await _at_rate(ground, sizes, LOW_PER_S, floor)})


async def _bare_commits(ground: Ground, sizes: Sizes) -> Together:
    """Commit as much by hand: what the table and its indexes cost, and a commit."""
    await ground.renew(0)
    task = {
        "kind": "floors.bare_steady_commits",
        "url": ground.dsn,
        "payload": stored_payload(),
        "connections": COMMITTERS,
    }
    return Together({STEADY_PER_S: await _at_rate(ground, sizes, STEADY_PER_S, committing=task)})


async def _at_rate(
    ground: Ground,
    sizes: Sizes,
    per_s: int,
    relay: Children | None = None,
    *,
    committing: dict[str, Any] | None = None,
) -> Usage:
    committing = committing or {"kind": "producing.steadily", "url": ground.url}
    async with children({**committing, "per_s": per_s}):
        await asyncio.sleep(sizes.warm_up_seconds)
        begun = await _spent(ground, relay, 0)
        await asyncio.sleep(sizes.rate_seconds)
        return Usage.between(begun, await _spent(ground, relay, begun.events))


async def _spent(ground: Ground, relay: Children | None, events: int) -> Spent:
    """Tell what was used so far, once more events than so many are delivered."""
    delivered = 0, 0.0
    if relay is not None:
        await relay.until_marked(events + 1)
        delivered = relay.marked, relay.found[0].cpu_seconds
    return Spent(time.monotonic(), await server_cpu_seconds(ground), *delivered)


def _relay(ground: Ground) -> AbstractAsyncContextManager[Children]:
    return children({"kind": "relaying.relay", "url": ground.url, "handler": "bench.ignore"})
