"""Messages on one database per run, emptied before each test, and wired as the application wires them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from lagom import Container
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.settings import Settings
from tests import servers


def settings_of(url: str) -> Settings:
    return Settings(database_url=url, contexts=("contexts.messaging",))


@pytest.fixture(scope="module")
def messaging_url(postgres_server: servers.Server) -> Iterator[str]:
    async def migrated(url: str) -> None:
        engine = build_container(settings_of(url))[AsyncEngine]
        await migrate(engine, settings_of(url))
        await engine.dispose()

    with servers.fresh_database(postgres_server) as url:
        asyncio.run(migrated(url))
        yield url


@pytest.fixture
async def container(messaging_url: str) -> AsyncIterator[Container]:
    container = build_container(settings_of(messaging_url))
    engine = container[AsyncEngine]
    async with engine.begin() as connection:
        await connection.execute(
            text(
                "TRUNCATE message_templates, group_messages, scheduled_messages, outbox_events, outbox_arrivals"
            )
        )
    yield container
    await engine.dispose()


@pytest.fixture
def rows(container: Container) -> Any:
    """Ask the database, as another connection sees it."""

    async def ask(query: str) -> list[tuple[Any, ...]]:
        async with container[AsyncEngine].connect() as connection:
            return [tuple(row) for row in await connection.execute(text(query))]

    return ask
