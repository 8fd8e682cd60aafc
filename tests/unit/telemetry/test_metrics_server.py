"""The small server for `/metrics`: what it answers, and what it puts up with (O4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress

import httpx
import pytest

from outbox_kernel.infrastructure.addresses import listen, url_of
from outbox_kernel.infrastructure.telemetry import serving
from outbox_kernel.infrastructure.telemetry.limits import CONNECTIONS_MAX, HEAD_BYTES_MAX
from outbox_kernel.infrastructure.telemetry.prometheus import CONTENT_TYPE
from outbox_kernel.infrastructure.telemetry.serving import MetricsServer

ASK = b"GET /metrics HTTP/1.1\r\n\r\n"


async def text() -> str:
    return "a_number 1\n"


@asynccontextmanager
async def served(render: Callable[[], Awaitable[str]] = text) -> AsyncIterator[str]:
    with closing(listen("127.0.0.1", 0)) as listening:
        server = MetricsServer(render)
        await server.start(listening)
        try:
            yield url_of(listening)
        finally:
            await server.close()


@asynccontextmanager
async def connected(
    url: str, begin: bytes
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which that has been said."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(begin)
        await writer.drain()
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def said(url: str, request: bytes) -> bytes:
    """What it answers to these bytes, until it hangs up."""
    with suppress(ConnectionError):
        async with connected(url, request) as (reader, _):
            return await reader.read()
    return b""


async def test_it_serves_the_metrics_and_says_where_they_are() -> None:
    async with served() as url, httpx.AsyncClient(base_url=url) as client:
        found = await client.get("/metrics?name=x")
        assert (found.status_code, found.text) == (200, "a_number 1\n")
        assert found.headers["content-type"] == CONTENT_TYPE
        head = await client.head("/metrics")
        assert (head.status_code, head.text, head.headers["content-length"]) == (200, "", "11")
        nowhere = await client.get("/")
        assert (nowhere.status_code, nowhere.text) == (404, "The metrics are at /metrics.\n")
        assert (await client.post("/metrics")).status_code == 405


@pytest.mark.parametrize(
    "request_",
    [b"\r\n\r\n", b"GET /metrics\r\n\r\n", b"GET /metrics SMTP\r\n\r\n", b"\x16\x03\x01 \x80 \xff\r\n\r\n"],
)
async def test_what_is_no_request_is_said_to_be_none(request_: bytes) -> None:
    async with served() as url:
        assert (await said(url, request_)).startswith(b"HTTP/1.1 400 ")


async def test_a_head_that_is_too_long_is_not_read_on() -> None:
    async with served() as url:
        answer = await said(url, b"GET /metrics HTTP/1.1\r\n" + b"a" * HEAD_BYTES_MAX * 4)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.get("/metrics")).status_code == 200


async def test_who_is_slow_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS_MAX", 0.05)
    async with served() as url:
        assert await said(url, b"GET /metr") == b""


async def test_who_never_asks_keeps_nobody_out() -> None:
    """R12: whoever has said nothing for the longest makes room, each time."""
    async with served() as url, AsyncExitStack() as there:
        silent = [
            (await there.enter_async_context(connected(url, b"GET /metrics HTTP/1.1\r\n")))[0]
            for _ in range(CONNECTIONS_MAX)
        ]
        for _ in range(2):
            assert (await said(url, ASK)).startswith(b"HTTP/1.1 200 ")
        with suppress(ConnectionError):
            assert await silent[0].read() == b""
        assert [each.at_eof() for each in silent[2:]] == [False] * (CONNECTIONS_MAX - 2)


async def test_no_more_are_let_in_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "CONNECTIONS_MAX", 1)
    asked, gate = asyncio.Event(), asyncio.Event()

    async def slow_text() -> str:
        asked.set()
        await gate.wait()
        return await text()

    async with served(slow_text) as url, connected(url, ASK) as (reader, _):
        await asked.wait()
        assert await said(url, ASK) == b""
        gate.set()
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")


async def test_it_ends_while_somebody_is_there(caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncExitStack() as ending:
        async with served() as url:
            there = connected(url, b"GET /metrics HTTP/1.1\r\n")
            reader, _ = await ending.enter_async_context(there)
            await said(url, b"\r\n\r\n")  # by then the first has been taken
        with suppress(ConnectionError):
            assert await reader.read() == b""
    assert caplog.messages == []


async def test_one_that_was_never_begun_ends() -> None:
    await MetricsServer(text).close()
