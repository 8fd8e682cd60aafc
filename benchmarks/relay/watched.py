"""What it costs a relay to be watched: every number counted and its metrics scraped each second, against none of it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.relay.draining import drain, interleaved, median_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.relay.draining import Drain
    from benchmarks.relay.ground import Ground
    from benchmarks.relay.sizes import Sizes

HOST = "127.0.0.1"
SCRAPE_SECONDS = 1.0


async def measure_metrics(ground: Ground, sizes: Sizes) -> dict[str, float]:
    """Drain events with a handler that does nothing, watched and alone."""
    scrapes = [0]
    found = await interleaved(
        {
            "watched": partial(_watched, ground, sizes.metrics_events, scrapes),
            "alone": partial(_drained, ground, sizes.metrics_events),
        },
        sizes.metrics_repetitions,
    )
    rate, alone = (median_of(found[side], "events_per_s") for side in ("watched", "alone"))
    return {
        "events_per_s": round(rate),
        "events_per_s_without": round(alone),
        "ratio": round(rate / alone, 3),
        "cpu_us_per_event": round(median_of(found["watched"], "cpu_us_per_event"), 2),
        "cpu_us_per_event_without": round(median_of(found["alone"], "cpu_us_per_event"), 2),
        "scrapes": scrapes[0],
    }


async def _drained(ground: Ground, events: int, **watching: int) -> Drain:
    await ground.renew(events)
    task: dict[str, Any] = {"kind": "relaying.relay", "url": ground.url, "handler": "bench.ignore"}
    return await drain({**task, **watching}, events)


async def _watched(ground: Ground, events: int, scrapes: list[int]) -> Drain:
    port = _free_port()
    async with _scraping(port, scrapes):
        return await _drained(ground, events, metrics_port=port)


@asynccontextmanager
async def _scraping(port: int, scrapes: list[int]) -> AsyncIterator[None]:
    """Scrape as Prometheus does, from this process, and count how often there was an answer."""

    async def scrape() -> None:
        while True:
            # It is yet to begin, or has ended.
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
                scrapes[0] += (await reader.read()).startswith(b"HTTP/1.1 200")
                writer.close()
            await asyncio.sleep(SCRAPE_SECONDS)

    task = asyncio.create_task(scrape())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port: int = taken.getsockname()[1]
        return port
