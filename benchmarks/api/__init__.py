"""What events cost a commit through the API: one endpoint twice, with an event and without, under equal load."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import secrets
import statistics
import sys
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from benchmarks.api.load import Connections
from benchmarks.databases import measured_database
from benchmarks.parcels import metadata
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.http.tokens import sign
from outbox_kernel.infrastructure.outbox import outbox_metadata

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "benchmarks.api.server")
# As many as keep a server of one process busy, and no more: beyond that they only wait.
CONNECTIONS = 8
TOKEN_SECONDS = 3600
PATHS = {"with": "/parcels", "without": "/parcels-without-events"}


class ServerFailed(InfrastructureError):
    """The measured server ended before it served; what it said of that is on standard error."""


@frozen
class Sizes:
    """How much of each is measured."""

    pairs: int
    slice_seconds: float


FULL, SHORT = Sizes(51, 0.5), Sizes(2, 0.2)


async def run(*, short: bool = False) -> dict[str, Any]:
    """Measure, and return the figures by name."""
    sizes = SHORT if short else FULL
    load = os.getloadavg()[0]
    async with measured_database() as url:
        await _make_tables(url)
        key = secrets.token_hex(32)
        async with _server(url, key) as (host, port):
            connections = Connections(
                host, port, sign(key, "bench", lasts_seconds=TOKEN_SECONDS), CONNECTIONS
            )
            async with connections:
                rates = await _rates(connections, sizes)
    return {**_figures(rates), "connections": CONNECTIONS, "machine": _machine(load)}


async def _rates(connections: Connections, sizes: Sizes) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in PATHS}
    for path in PATHS.values():
        await connections.rate(path, sizes.slice_seconds)  # connects and warms up
    for number in range(sizes.pairs):
        for name in sorted(PATHS, reverse=bool(number % 2)):
            rates[name].append(await connections.rate(PATHS[name], sizes.slice_seconds))
    return rates


def _figures(rates: dict[str, list[float]]) -> dict[str, Any]:
    pairs = list(zip(rates["without"], rates["with"], strict=True))
    return {
        "ratio": round(statistics.median(without / told for without, told in pairs), 3),
        "commits_per_s": round(statistics.median(rates["with"])),
        "commits_per_s_without_events": round(statistics.median(rates["without"])),
        "pairs": len(pairs),
    }


def _machine(load: float) -> dict[str, Any]:
    return {
        "cpus": os.cpu_count(),
        "load": load,
        "python": platform.python_version(),
        "uvloop": find_spec("uvloop") is not None,
        "httptools": find_spec("httptools") is not None,
    }


async def _make_tables(url: str) -> None:
    engine = create_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
        await connection.run_sync(outbox_metadata.create_all)
    await engine.dispose()


@asynccontextmanager
async def _server(url: str, key: str) -> AsyncIterator[tuple[str, int]]:
    """Serve in a process of its own, which ends with the block, or with this process."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdin is not None  # noqa: S101 - asked for above
    assert process.stdout is not None  # noqa: S101 - the same
    try:
        process.stdin.write(json.dumps({"url": url, "key": key}).encode() + b"\n")
        line = await process.stdout.readline()
        if not line:
            raise ServerFailed("the measured server did not start; what it says is on standard error")
        host, port = json.loads(line)
        yield host, port
    finally:
        process.stdin.close()
        await process.wait()
