"""What it costs a relay to be watched: every number counted, its metrics scraped and a page looked at each second."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx

from benchmarks.relay.draining import drain, interleaved, median_of
from benchmarks.relay.processes import MeasurementFailed
from outbox_kernel.infrastructure.dashboard import Dashboard
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.relay.draining import Drain
    from benchmarks.relay.ground import Ground
    from benchmarks.relay.sizes import Sizes

HOST = "127.0.0.1"
# Fewer say nothing of what they cost.
SCRAPES_MIN = 3
DRAINS_MAX = 50
# Until the relay serves its metrics.
KNOCK_SECONDS = 0.005


async def measure_metrics(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Drain events with a handler that does nothing, watched and alone, until some scrapes fell into the drains.

    Watched is to be scraped, and in a third drain to have the dashboard open, too.
    """
    scrapes = [0]
    sides = {
        "scraped": partial(_watched, ground, sizes, scrapes, is_open=False),
        "looked_at": partial(_watched, ground, sizes, scrapes, is_open=True),
        "alone": partial(_drained, ground, sizes.metrics_events),
    }
    found = await interleaved(sides, sizes.metrics_repetitions)
    while scrapes[0] < SCRAPES_MIN:
        if len(found["scraped"]) == DRAINS_MAX:
            raise MeasurementFailed(f"{scrapes[0]} scrapes were answered in {DRAINS_MAX} drains")
        for side, drains in (await interleaved(sides, 1)).items():
            found[side] += drains
    rate, looked_at, alone = (median_of(found[side], "events_per_s") for side in sides)
    return {
        "events_per_s": round(rate),
        "events_per_s_with_dashboard": round(looked_at),
        "events_per_s_without": round(alone),
        "ratio": round(rate / alone, 3),
        "ratio_with_dashboard": round(looked_at / alone, 3),
        "cpu_us_per_event": round(median_of(found["scraped"], "cpu_us_per_event"), 2),
        "cpu_us_per_event_without": round(median_of(found["alone"], "cpu_us_per_event"), 2),
        "scrapes": scrapes[0],
    }


async def _drained(ground: Ground, events: int, **watching: int) -> Drain:
    await ground.renew(events)
    task: dict[str, Any] = {"kind": "relaying.relay", "url": ground.url, "handler": "bench.ignore"}
    return await drain({**task, **watching}, events)


async def _watched(ground: Ground, sizes: Sizes, scrapes: list[int], *, is_open: bool) -> Drain:
    port = _free_port()
    async with AsyncExitStack() as watching:
        answered_ns = await watching.enter_async_context(_scraping(port, sizes.scrape_seconds))
        if is_open:
            await watching.enter_async_context(_looking(ground.url, sizes.scrape_seconds))
        found = await _drained(ground, sizes.metrics_events, metrics_port=port)
    # Before and after a drain they cost it nothing.
    scrapes[0] += sum(map(found.has, answered_ns))
    return found


@asynccontextmanager
async def _looking(url: str, seconds: float) -> AsyncIterator[None]:
    """Load the overview again and again from this process, as an open page does while anything moves."""
    engine = create_engine(url, pool_size=2)
    transport = httpx.ASGITransport(app=Dashboard(Settings(contexts=()), engine), client=(HOST, 1))

    async def look(browser: httpx.AsyncClient) -> None:
        while True:
            (await browser.get("/")).raise_for_status()
            await asyncio.sleep(seconds)

    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as browser:
        task = asyncio.create_task(look(browser))
        try:
            yield
        finally:
            if task.done():
                task.result()
            task.cancel()
            await asyncio.wait([task])
    await engine.dispose()


@asynccontextmanager
async def _scraping(port: int, seconds: float) -> AsyncIterator[list[int]]:
    """Scrape as Prometheus does, from this process; yield when there were answers."""
    answered_ns: list[int] = []

    async def scrape() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
                if (await reader.read()).startswith(b"HTTP/1.1 200"):
                    answered_ns.append(time.monotonic_ns())
                writer.close()
                await asyncio.sleep(seconds)
            except OSError:  # it is yet to begin, or has ended
                await asyncio.sleep(KNOCK_SECONDS)

    task = asyncio.create_task(scrape())
    try:
        yield answered_ns
    finally:
        task.cancel()
        await asyncio.wait([task])


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port: int = taken.getsockname()[1]
        return port
