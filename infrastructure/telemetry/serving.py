"""A small HTTP server for `/metrics`, in processes that serve nothing else (O4).

It answers one request per connection and knows two addresses. Who is slow is hung up on. When as many as it takes are
there, whoever has not asked for the longest makes room, and where all have asked, who comes is turned away: so nobody
can hold the process up by asking, or keep others out by not asking.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.telemetry.limits import (
    ANSWER_SECONDS_MAX,
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    REQUEST_SECONDS_MAX,
)
from outbox_kernel.infrastructure.telemetry.prometheus import CONTENT_TYPE

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

PATH = "/metrics"
_HINT = f"The metrics are at {PATH}.\n"


class MetricsServer:
    """Serves a text that is made anew for each who asks, on a socket that listens already."""

    def __init__(self, render: Callable[[], Awaitable[str]]) -> None:
        self._render = render
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        # Those that have not asked yet, the oldest first.
        self._silent: dict[asyncio.Task[None], None] = {}

    async def start(self, listening: socket.socket) -> None:
        """Begin to serve."""
        self._server = await asyncio.start_server(self._take, sock=listening, limit=HEAD_BYTES_MAX)

    async def close(self) -> None:
        """Serve no more; who is being answered is hung up on."""
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or not self._has_room():
            writer.transport.abort()
            return
        self._connections.add(task)
        self._silent[task] = None
        try:
            # A peer that has gone, or is slow, is its own affair; cancelled, it ends here, or asyncio would log it.
            with suppress(OSError, TimeoutError, asyncio.CancelledError):
                await self._answer(task, reader, writer)
        finally:
            self._let_go(task)
            writer.transport.abort()

    def _has_room(self) -> bool:
        """Say whether one more is taken, for which whoever is silent for the longest may have to go."""
        if len(self._connections) < CONNECTIONS_MAX:
            return True
        if not self._silent:
            return False
        oldest = next(iter(self._silent))
        self._let_go(oldest)
        oldest.cancel()
        return True

    def _let_go(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        self._silent.pop(task, None)

    async def _answer(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            request = await _head_of(reader)
        self._silent.pop(task, None)
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            status, body, kind = await self._answer_to(request)
            head = (
                f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + (b"" if request[:1] == ["HEAD"] else body))
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    async def _answer_to(self, request: list[str]) -> tuple[HTTPStatus, bytes, str]:
        plain = "text/plain; charset=utf-8"
        if len(request) != 3 or not request[2].startswith("HTTP/1."):  # noqa: PLR2004 - method, target, version
            return HTTPStatus.BAD_REQUEST, b"That is no request of HTTP/1.\n", plain
        method, target, _ = request
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, b"There is only GET here.\n", plain
        if target.partition("?")[0] != PATH:
            return HTTPStatus.NOT_FOUND, _HINT.encode(), plain
        return HTTPStatus.OK, (await self._render()).encode(), CONTENT_TYPE


async def _head_of(reader: asyncio.StreamReader) -> list[str]:
    """Read a request's head, and return the words of its first line."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return []
    return head.partition(b"\r\n")[0].decode("latin-1").split(" ")
