"""Families on a database that these tests share, wired as the application wires them; each makes its own family."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest
from lagom import Container
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from contexts.families.use_cases import CreateFamily, CreateFamilyHandler
from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.settings import Settings
from tests import servers


def settings_of(url: str) -> Settings:
    return Settings(database_url=url, contexts=("contexts.families",))


async def migrated(url: str) -> None:
    engine = create_engine(url)
    await migrate(engine, settings_of(url))
    await engine.dispose()


@pytest.fixture(scope="session")
def families_url(postgres_server: servers.Server) -> Iterator[str]:
    with servers.fresh_database(postgres_server) as url:
        servers.run(migrated(url))
        yield url


@pytest.fixture
async def container(families_url: str) -> AsyncIterator[Container]:
    container = build_container(settings_of(families_url))
    yield container
    await container[AsyncEngine].dispose()


@pytest.fixture
def rows(container: Container) -> Any:
    """Ask the database, as another connection sees it."""

    async def ask(query: str, **values: object) -> list[tuple[Any, ...]]:
        async with container[AsyncEngine].connect() as connection:
            return [tuple(row) for row in await connection.execute(text(query), values)]

    return ask


@attrs.frozen
class Home:
    """A family that is new, and who owns it."""

    family_id: UUID
    owner: UUID


@pytest.fixture
async def home(container: Container) -> Home:
    owner = uuid4()
    family_id = await container[CreateFamilyHandler].handle(
        CreateFamily("The Lovelaces", owner, "ada@example.org")
    )
    return Home(family_id, owner)
