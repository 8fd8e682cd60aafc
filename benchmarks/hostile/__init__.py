"""What bodies of a megabyte, and connections that never ask, do to those who ask for health meanwhile."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import secrets
import socket
import sys
import time
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchmarks.databases import measured_database
from benchmarks.hostile.bodies import BODIES
from benchmarks.hostile.watching import HEALTH, SECONDS_MAX, Taken, Watch, sent
from outbox_kernel.infrastructure.application import Outbox
from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.http.tokens import sign
from outbox_kernel.infrastructure.master_keys import new_master_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).resolve().parents[2]
USER = "0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3"
ROUNDS, HALF_OPEN, HEALTH_REQUESTS = 5, 2_000, 75
_HALF_A_HEAD = b"GET /health/live HTTP/1.1\r\nHost: x\r\n"


class ServerFailed(InfrastructureError):
    """The measured server ended before it served; what it said of that is on standard error."""


async def run(*, short: bool = False) -> dict[str, dict[str, Any]]:
    """Measure, and return the figures by the name of what was sent: the worst of some rounds."""
    rounds = 1 if short else ROUNDS
    key = secrets.token_hex(32)
    headers = {"Authorization": f"Bearer {sign(key, USER, lasts_seconds=3600)}"}
    async with measured_database() as url:
        await _migrate(url)
        async with _server(url, key) as (host, port, pid):
            figures = await asyncio.to_thread(_bodies, (host, port, pid), headers, rounds)
            number = HALF_OPEN // 10 if short else HALF_OPEN
            figures["half_open"] = await asyncio.to_thread(_half_open, host, port, number)
    return figures


def _bodies(server: tuple[str, int, int], headers: dict[str, str], rounds: int) -> dict[str, dict[str, Any]]:
    host, port, pid = server
    for path in {path for path, _ in BODIES.values()}:
        sent(host, port, path, b"{}", headers)  # what the first request of each needs is loaded once
    taken, figures = Taken(pid), {}
    for name, (path, make) in BODIES.items():
        body = make()
        found = [_one((host, port, path, body, headers), taken) for _ in range(rounds)]
        figures[name] = {each: max(one[each] for one in found) for each in found[0]}
    return figures


def _one(request: tuple[str, int, str, bytes, dict[str, str]], taken: Taken) -> dict[str, Any]:
    host, port, *_ = request
    taken.begin()
    with Watch(host, port) as watch:
        status, _ = sent(*request)
    return {
        "bytes": len(request[3]),
        "status": status,
        "health_waits_ms": watch.longest_ms,
        "memory_mb": taken.mb,
    }


def _half_open(host: str, port: int, number: int) -> dict[str, Any]:
    """Open as many connections and send half a request by each; then ask for health, a new connection each time."""
    with ExitStack() as stack:
        for _ in range(number):
            half = stack.enter_context(socket.create_connection((host, port), SECONDS_MAX))
            half.sendall(_HALF_A_HEAD)
        answered, longest = 0, 0.0
        for _ in range(HEALTH_REQUESTS):
            began = time.perf_counter()
            connection = http.client.HTTPConnection(host, port, timeout=SECONDS_MAX)
            connection.request("GET", HEALTH)
            answered += connection.getresponse().status == http.client.OK
            connection.close()
            longest = max(longest, time.perf_counter() - began)
    return {
        "connections": number,
        "health_asked": HEALTH_REQUESTS,
        "health_answered": answered,
        "health_waits_ms": round(longest * 1_000, 1),
    }


async def _migrate(url: str) -> None:
    outbox = Outbox(url)
    try:
        await outbox.migrate()
    finally:
        await outbox.close()


@asynccontextmanager
async def _server(url: str, key: str) -> AsyncIterator[tuple[str, int, int]]:
    """Serve as `outbox api` does, in a process of its own; yield where, and its id."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    settings = {
        "DATABASE_URL": url,
        "OUTBOX_API_TOKEN_KEY": key,
        "OUTBOX_MASTER_KEYS": new_master_key("bench"),
        "PYTHONPATH": path,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "outbox_kernel", "api", "--port", "0"),
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **settings},
    )
    assert process.stderr is not None  # noqa: S101 - asked for above
    reading: asyncio.Task[Any] | None = None
    try:
        async for line in process.stderr:
            if (url_told := json.loads(line).get("url")) is not None:
                break
        else:
            raise ServerFailed("the measured server did not start: run `outbox api` to see why")
        # Its log is read all the time, or it would stand still once the pipe is full.
        reading = asyncio.create_task(process.stderr.read())
        where = urlsplit(url_told)
        yield str(where.hostname), int(where.port or 0), process.pid
    finally:
        if process.returncode is None:
            process.kill()
        if reading is not None:
            await reading
        await process.wait()
