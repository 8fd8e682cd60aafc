"""A browser that listens hears of what happens, and a stream ends when it leaves or the server stops (O3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.dashboard import Dashboard, live
from outbox_kernel.infrastructure.dashboard.security import HEADERS
from tests.integration.dashboard.conftest import SETTINGS
from tests.integration.operations.conftest import Outbox

SCOPE = {
    "type": "http",
    "method": "GET",
    "path": "/live",
    "raw_path": b"/live",
    "query_string": b"",
    "root_path": "",
    "scheme": "http",
    "headers": [(b"host", b"localhost")],
    "client": ("127.0.0.1", 5),
    "server": ("localhost", 80),
}


class Listener:
    """A browser's end of a stream."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        self.leaves = asyncio.Event()

    async def receive(self) -> Any:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.heard.put(message)

    async def word(self) -> str:
        message = await self.heard.get()
        return str(message["body"].decode())


@asynccontextmanager
async def listening(dashboard: Dashboard) -> AsyncIterator[tuple[Listener, asyncio.Task[None]]]:
    listener = Listener()
    task = asyncio.create_task(dashboard(dict(SCOPE), listener.receive, listener.send))
    try:
        yield listener, task
    finally:
        listener.leaves.set()
        await task


async def test_a_browser_hears_when_something_has_happened(
    outbox: Outbox, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.01)
    async with listening(Dashboard(SETTINGS, engine)) as (listener, _):
        start = await listener.heard.get()
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["x-accel-buffering"] == "no"
        assert headers["content-security-policy"] == HEADERS["content-security-policy"]
        assert await listener.word() == "retry: 2000\n\n"
        for number in range(2):
            assert await listener.word() == f"event: tick\ndata: {number}\n\n"
        await outbox.event()
        assert await listener.word() == "event: tick\ndata: 2\n\n"


async def test_a_server_that_stops_ends_the_stream(outbox: Outbox, engine: AsyncEngine) -> None:
    dashboard = Dashboard(SETTINGS, engine)
    async with listening(dashboard) as (listener, task):
        await listener.heard.get()
        await listener.word()
        dashboard.close()
        await task
        last = None
        while not listener.heard.empty():
            last = listener.heard.get_nowait()
        assert last == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_too_many_are_sent_away(
    outbox: Outbox, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LISTENERS_MAX", 0)
    async with listening(Dashboard(SETTINGS, engine)) as (listener, _):
        assert (await listener.heard.get())["status"] == 503
