"""All measurements of publishing and consuming, each beside its floor in the same run."""

from __future__ import annotations

import os
import platform
import statistics
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import attrs

from benchmarks.databases import database_on, measured_server
from benchmarks.rabbitmq import broker
from benchmarks.relay import ground
from benchmarks.relay.draining import Drain, interleaved, median_of
from benchmarks.relay.processes import children

if TYPE_CHECKING:
    from collections.abc import Callable

AGGREGATES = 4_000
SPACING_SECONDS = 0.02
# Before these are over, connections are made and statements prepared.
WARM_UP_COMMITS = 25
SUBSCRIBED = "SELECT count(*) > 0 FROM outbox_cursors"
SIDES, FLOORS = "benchmarks.rabbitmq.sides", "benchmarks.rabbitmq.floors"


@attrs.frozen
class Sizes:
    """How much is measured."""

    events: int
    commits: int
    repetitions: int


# So many that the start of a relay, some tenths of a second, weighs as little as it does in service.
FULL, SHORT = Sizes(60_000, 500, 3), Sizes(500, 10, 1)


@attrs.frozen
class Place:
    """Two databases, of two machines, and a broker between them."""

    here: ground.Ground
    there: ground.Ground
    post: broker.Ground
    sizes: Sizes

    def task(self, kind: str, url: str, **more: Any) -> dict[str, Any]:
        """Say what a process is to be."""
        return {"kind": kind, "url": url, "broker": self.post.url, "name": self.post.name, **more}


async def run(*, short: bool = False) -> dict[str, Any]:
    """Measure all, and return the figures by name."""
    async with (
        measured_server() as server,
        database_on(server) as here,
        database_on(server) as there,
        ground.prepared(here) as first,
        ground.prepared(there) as second,
        broker.prepared() as post,
    ):
        place = Place(first, second, post, SHORT if short else FULL)
        return {
            "machine": await _machine(place),
            "publish": await measure_publish(place),
            "consume": await measure_consume(place),
            "end_to_end": await measure_end_to_end(place),
        }


async def measure_publish(place: Place) -> dict[str, float]:
    """Publish a backlog, against aio-pika alone with the same messages."""
    events = place.sizes.events

    async def ours() -> Drain:
        await _renew(place, events)
        return await _drained(place.task(f"{SIDES}.publish", place.here.url), events)

    async def floor() -> Drain:
        await _renew(place, events)
        return await _drained(place.task(f"{FLOORS}.publish", place.here.dsn), events)

    return await _compared(ours, floor, place.sizes.repetitions)


async def measure_consume(place: Place) -> dict[str, float]:
    """Take a full queue to a handler that does nothing, against bare consuming, inserting and acknowledging."""
    events = place.sizes.events

    async def ours() -> Drain:
        await _fill_queue(place, events)
        return await _drained(place.task(f"{SIDES}.consume", place.there.url, handler="bench.ignore"), events)

    async def floor() -> Drain:
        await _fill_queue(place, events)
        return await _drained(place.task(f"{FLOORS}.consume", place.there.dsn, events=events), events)

    return await _compared(ours, floor, place.sizes.repetitions)


async def measure_end_to_end(place: Place) -> dict[str, float]:
    """Commit here now and then, and see when the handler there begins."""
    await _renew(place, 0)
    await place.there.empty()
    commits = WARM_UP_COMMITS + place.sizes.commits
    publishing = place.task(f"{SIDES}.publish", place.here.url)
    consuming = place.task(f"{SIDES}.consume", place.there.url, handler="bench.note_start")
    rhythm = {"commits": commits, "every": SPACING_SECONDS}
    committing = {"kind": "committing.captured_commits", "url": place.here.url, **rhythm}
    async with children(publishing, consuming) as machines:
        await place.here.until(SUBSCRIBED)
        await place.there.until(SUBSCRIBED)
        async with children(committing) as committer:
            [committed] = await committer.reports()
        await machines.until_marked(2 * commits)  # here when it is published, there when it is handled
        _, handled = await machines.end()
    moments = committed["moments_ns"]
    delays = sorted(
        (handled["moments_ns"][event_id] - moment) / 1e6
        for event_id, moment in list(moments.items())[WARM_UP_COMMITS:]
    )
    percentiles = statistics.quantiles(delays, n=100, method="inclusive")
    return {"p50_ms": round(percentiles[49], 3), "p99_ms": round(percentiles[98], 3), "commits": len(delays)}


async def _compared(
    ours: Callable[..., Any], floor: Callable[..., Any], repetitions: int
) -> dict[str, float]:
    found = await interleaved({"ours": partial(ours), "floor": partial(floor)}, repetitions)
    rate, bare = (median_of(found[side], "events_per_s") for side in ("ours", "floor"))
    return {
        "events_per_s": round(rate),
        "floor_events_per_s": round(bare),
        "ratio": round(rate / bare, 3),
        "cpu_us_per_event": round(median_of(found["ours"], "cpu_us_per_event"), 1),
        "floor_cpu_us_per_event": round(median_of(found["floor"], "cpu_us_per_event"), 1),
    }


async def _drained(task: dict[str, Any], events: int) -> Drain:
    async with children(task) as family:
        await family.until_marked(events)
        [report] = await family.end()
    return Drain(events, (report["ended_ns"] - report["begun_ns"]) / 1e9, report["cpu_seconds"])


async def _renew(place: Place, events: int) -> None:
    await place.post.empty()
    await place.here.renew(events, aggregates=AGGREGATES)


async def _fill_queue(place: Place, events: int) -> None:
    await _renew(place, events)
    await _drained(place.task(f"{FLOORS}.publish", place.here.dsn), events)
    await place.there.empty()


async def _machine(place: Place) -> dict[str, Any]:
    return {
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "uvloop": find_spec("uvloop") is not None,
        "postgresql": await place.here.ask("SHOW server_version"),
    }
