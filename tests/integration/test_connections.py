"""A connection outside every pool has a deadline, and one sentence for whatever goes wrong (R12)."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asyncpg import connect_utils
from sqlalchemy import event, text

from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.postgres import connections
from outbox_kernel.infrastructure.postgres.connections import connect

# A server that lets everybody in, and is ready for queries that it never answers.
WELCOME = b"R\x00\x00\x00\x08\x00\x00\x00\x00" + b"S\x00\x00\x00\x19server_version\x0015.0\x00"
READY = b"Z\x00\x00\x00\x05I"


@asynccontextmanager
async def server(*, cuts: bool) -> AsyncIterator[int]:
    """A server that goes silent, or away, at the first query."""
    tasks: list[asyncio.Task[None]] = []

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)  # who it is
        writer.write(WELCOME + READY)
        try:
            while await reader.read(1000) and not cuts:
                pass
        finally:
            writer.transport.abort()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.create_task(welcome(reader, writer)))

    listening = await asyncio.start_server(take, "127.0.0.1", 0)
    yield listening.sockets[0].getsockname()[1]
    listening.close()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.parametrize("cuts", [False, True])
async def test_a_server_that_goes_silent_while_it_is_greeted_is_one_sentence(
    cuts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECT_SECONDS_MAX", 0.3)
    async with server(cuts=cuts) as port:
        engine = create_engine(f"postgresql://nobody@127.0.0.1:{port}/nothing?sslmode=disable")
        async with asyncio.timeout(4):
            with pytest.raises(DatabaseUnreachable):
                await connect(engine.sync_engine)


async def test_an_application_may_listen_to_its_connecting(empty_postgres_url: str) -> None:
    """As it does to give a password that is made anew for each login."""
    engine = create_engine(empty_postgres_url)

    @event.listens_for(engine.sync_engine, "do_connect")
    def name_it(_dialect: object, _record: object, _arguments: object, options: dict[str, Any]) -> None:
        options["server_settings"] = {"application_name": "named by a listener"}

    async with engine.connect() as connection:
        assert await connection.scalar(text("SHOW application_name")) == "named by a listener"
    await engine.dispose()


async def test_connecting_that_is_cancelled_before_the_server_is_asked_leaves_no_complaint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R10: as when a program ends right after its last commit."""
    lost = asyncio.Event()
    complaints: list[dict[str, Any]] = []
    tasks: list[asyncio.Task[Any]] = []
    lose = connect_utils.TLSUpgradeProto.connection_lost

    def connection_made(_self: object, _transport: object) -> None:
        tasks[0].cancel()

    def connection_lost(self: Any, error: Exception | None) -> None:
        lose(self, error)
        lost.set()

    monkeypatch.setattr(connect_utils.TLSUpgradeProto, "connection_made", connection_made)
    monkeypatch.setattr(connect_utils.TLSUpgradeProto, "connection_lost", connection_lost)
    asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        engine = create_engine(f"postgresql://nobody@127.0.0.1:{mute.getsockname()[1]}/nothing")
        tasks.append(asyncio.create_task(connect(engine.sync_engine)))
        await asyncio.wait(tasks)
        await asyncio.wait_for(lost.wait(), 10)
    assert tasks.pop().cancelled()
    gc.collect()
    assert complaints == []
