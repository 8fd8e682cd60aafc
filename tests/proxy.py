"""A TCP proxy before a server, to cut connections, to hold answers back, and to be nobody at home."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from attrs import Factory, define


@define(eq=False)
class Proxy:
    """Passes on what it is given, until it is told otherwise."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    answers: asyncio.Event = Factory(asyncio.Event)
    """Cleared, the server's answers are held back."""
    held: asyncio.Event = Factory(asyncio.Event)
    """Set when there is an answer that is held back."""
    here: int = 0
    accepted: int = 0
    """How many connections there were."""
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = Factory(set)
    _tasks: set[asyncio.Task[None]] = Factory(set)

    async def open(self) -> None:
        """Listen, at the same port each time."""
        self.answers.set()
        self.held.clear()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.here, ssl=self.tls)
        self.here = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Be nobody at home."""
        if self._server is not None:
            self._server.close()
        self.cut()
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._server = None

    def cut(self) -> None:
        """End every connection without a word."""
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.accepted += 1
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        with suppress(OSError, asyncio.CancelledError):
            there, thither = await asyncio.open_connection(self.host, self.port)
            self._writers.add(thither)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(reader, thither))
                both.create_task(self._pass_on(there, writer, self._may_answer))
        for each in (writer, *([thither] if "thither" in locals() else [])):
            self._writers.discard(each)
            each.transport.abort()

    async def _may_answer(self) -> None:
        if not self.answers.is_set():
            self.held.set()
            await self.answers.wait()

    @staticmethod
    async def _pass_on(
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        may: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if may is not None:
                    await may()
                sink.write(data)
                await sink.drain()
        sink.transport.abort()


@asynccontextmanager
async def proxy_before(host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[Proxy]:
    """A running proxy, gone at the end."""
    proxy = Proxy(host, port, tls)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.close()
