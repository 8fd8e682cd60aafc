"""The API of this repository's contexts in this process, on one migrated database for all tests of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import httpx
import pytest
from fastapi import FastAPI
from lagom import Container
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.discovery import context_packages
from outbox_kernel.infrastructure.http import BearerTokens, create_app
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel import catalogue, discover_handlers
from tests import servers
from tests.asking import KEY, asking
from tests.migrated import migrated_database


@pytest.fixture(scope="module")
def database(postgres_server: servers.Server) -> Iterator[Settings]:
    """The settings of a database with the tables of all contexts."""
    with migrated_database(postgres_server) as url:
        yield Settings(database_url=url)


@pytest.fixture
async def container(database: Settings) -> AsyncIterator[Container]:
    made = build_container(database)
    yield made
    await made[AsyncEngine].dispose()


@pytest.fixture
def app(container: Container) -> FastAPI:
    return create_app(container, BearerTokens(KEY))


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(app) as client:
        yield client


@pytest.fixture(autouse=True)
def only_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what other tests of this process have registered, since no container here can make it."""
    handlers = discover_handlers(context_packages(Settings()))
    mine = {each.name: each for each in handlers if each.handler.__module__.startswith("contexts.")}
    monkeypatch.setattr(catalogue.definitions, "handlers", mine)


Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]


@pytest.fixture
async def ask(database: Settings) -> AsyncIterator[Ask]:
    """Ask the database, as another connection sees it."""
    connection = await asyncpg.connect(database.database_url)

    async def rows(query: str, *arguments: object) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await connection.fetch(query, *arguments)]

    yield rows
    await connection.close()
