"""Readiness: the database answers in time and is migrated, or the sentence that says what is missing."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from lagom import Container
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.http import BearerTokens, create_app
from outbox_kernel.infrastructure.http.health import Health
from outbox_kernel.infrastructure.http.limits import (
    FRESH_SECONDS,
    MIGRATIONS_FRESH_SECONDS,
    WRITTEN_FRESH_SECONDS,
)
from outbox_kernel.infrastructure.http.problems import Refused
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.settings import Settings
from tests.asking import KEY, asking, problem
from tests.integration.http.conftest import Ask


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


async def test_on_a_migrated_database_it_is_ready(client: httpx.AsyncClient) -> None:
    answer = await client.get("/health/ready")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready"})


async def test_on_a_database_that_is_not_migrated_it_lives_and_is_not_ready(empty_postgres_url: str) -> None:
    container = build_container(Settings(database_url=empty_postgres_url))
    async with asking(create_app(container, BearerTokens(KEY))) as client:
        refused = problem(await client.get("/health/ready"), 503)
        assert "outbox migrate" in refused["detail"]
        assert (await client.get("/health/live")).json() == {"status": "alive"}
        # And what cannot work says so, without a word of the tables.
        assert problem(await client.post("/accounts", json={"email": "a@b.c"}), 503)["type"] == "unavailable"
    await container[AsyncEngine].dispose()


async def test_what_nobody_answers_is_not_ready() -> None:
    container = build_container(Settings(database_url="postgresql://nobody@127.0.0.1:1/nothing"))
    async with asking(create_app(container, BearerTokens(KEY))) as client:
        refused = problem(await client.get("/health/ready"), 503)
    assert "cannot be reached" in refused["detail"]
    assert "127.0.0.1" not in refused["detail"]


async def test_a_database_that_does_not_answer_in_time_is_not_ready() -> None:
    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    ended = asyncio.Event()
    server = await asyncio.start_server(say_nothing, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    container = build_container(Settings(database_url=f"postgresql://nobody@127.0.0.1:{port}/nothing"))
    health = Health(container, lambda: False, deadline_seconds=0.05)
    with pytest.raises(Refused, match=r"did not answer within 0\.05 s"):
        await health.require_ready()
    ended.set()
    server.close()
    await server.wait_closed()


async def test_it_is_asked_often_and_looks_seldom(empty_postgres_url: str) -> None:
    settings, now = Settings(database_url=empty_postgres_url), Clock()
    container = build_container(settings)
    health = Health(container, lambda: False, now=now)
    with pytest.raises(Refused):
        await health.require_ready()
    await migrate(container[AsyncEngine], settings)
    with pytest.raises(Refused):
        await health.require_ready()
    now.seconds += FRESH_SECONDS
    await health.require_ready()
    now.seconds += FRESH_SECONDS
    await health.require_ready()
    assert now.seconds < MIGRATIONS_FRESH_SECONDS
    await container[AsyncEngine].dispose()


async def test_it_writes_now_and_then_and_at_once_where_there_is_doubt(
    database: Settings, container: Container, ask: Ask
) -> None:
    now = Clock()
    health = Health(container, lambda: False, now=now)

    async def next_position() -> int:
        return int((await ask("SELECT last_value FROM outbox_events_position_seq"))[0][0])

    positions = []
    for seconds in (0.0, FRESH_SECONDS, WRITTEN_FRESH_SECONDS, FRESH_SECONDS):
        now.seconds += seconds
        await health.require_ready()
        positions.append(await next_position())
    health.doubt()
    now.seconds += FRESH_SECONDS
    await health.require_ready()
    positions.append(await next_position())
    assert [position - positions[0] for position in positions] == [0, 0, 1, 1, 2]
    assert await ask("SELECT count(*) FROM outbox_events WHERE event_type = 'outbox.probe'") == [(0,)]


async def test_a_trouble_that_lasts_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    now = Clock()
    container = build_container(Settings(database_url="postgresql://nobody@127.0.0.1:1/nothing"))
    health = Health(container, lambda: False, now=now)
    for _ in range(3):
        with pytest.raises(Refused):
            await health.require_ready()
        now.seconds += FRESH_SECONDS
    assert sum("not ready" in record.getMessage() for record in caplog.records) == 1


async def test_without_its_relay_it_is_neither_alive_nor_ready(container: Container) -> None:
    health = Health(container, lambda: True)
    with pytest.raises(Refused, match="relay in this process has ended"):
        health.require_alive()
    with pytest.raises(Refused, match="relay in this process has ended"):
        await health.require_ready()
