"""Accounts on a database of the test's own, wired as the application wires them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from lagom import Container
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.settings import Settings


@pytest.fixture
async def container(empty_postgres_url: str) -> AsyncIterator[Container]:
    settings = Settings(database_url=empty_postgres_url, contexts=("contexts.accounts",))
    container = build_container(settings)
    engine = container[AsyncEngine]
    await migrate(engine, settings)
    yield container
    await engine.dispose()


@pytest.fixture
def rows(container: Container) -> Any:
    """Ask the database, as another connection sees it."""

    async def ask(query: str) -> list[tuple[Any, ...]]:
        async with container[AsyncEngine].connect() as connection:
            return [tuple(row) for row in await connection.execute(text(query))]

    return ask
