"""What a pooler in transaction mode makes of LISTEN: between two calls, nothing that the server says arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from attrs import Factory, define
from sqlalchemy import URL, make_url

READY_AND_IDLE = b"Z\x00\x00\x00\x05I"


@define(eq=False)
class Pooler:
    """Stands before a server; keeps each client's connection, and drops what it has not asked for."""

    behind: URL
    _tasks: set[asyncio.Task[None]] = Factory(set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on calls and their answers."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        asked = asyncio.Event()
        there, thither = await self._connect()
        with suppress(OSError, asyncio.CancelledError):
            asking = asyncio.create_task(self._ask(reader, thither, asked))
            while data := await there.read(65_536):
                if asked.is_set():
                    writer.write(data)
                if data.endswith(READY_AND_IDLE):
                    asked.clear()
            await asking
        for each in (writer, thither):
            each.transport.abort()

    async def end(self) -> None:
        """End every connection."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        folder, port = self.behind.query.get("host"), self.behind.port or 5432
        if folder:
            return await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.{port}")
        return await asyncio.open_connection(self.behind.host, port)

    @staticmethod
    async def _ask(reader: asyncio.StreamReader, thither: asyncio.StreamWriter, asked: asyncio.Event) -> None:
        while data := await reader.read(65_536):
            asked.set()
            thither.write(data)
        thither.transport.abort()


@asynccontextmanager
async def pooler_before(url: str) -> AsyncIterator[str]:
    """Yield the URL that leads through it."""
    behind = make_url(url)
    pooler = Pooler(behind)
    server = await asyncio.start_server(pooler.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield (
            behind.set(host="127.0.0.1", port=port)
            .difference_update_query(["host", "port"])
            .render_as_string(hide_password=False)
        )
    finally:
        server.close()
        await pooler.end()
