"""The dashboard over an outbox with the sample in it, and over one that a test fills itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.dashboard import Dashboard
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.operations import Desk
from outbox_kernel.infrastructure.sample import fill
from outbox_kernel.infrastructure.settings import Settings
from tests import servers
from tests.integration.operations.conftest import TABLES, Outbox, fresh_outbox
from tests.visiting import Visitor, visiting

SETTINGS = Settings(contexts=())


async def filled(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await fill(Desk(connection))
        # Nobody renews them, and the tests take longer than a lease.
        await connection.execute(
            "UPDATE outbox_relays SET expires_at = now() + interval '1 day' WHERE expires_at > now()"
        )
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def sample_url(postgres_server: servers.Server) -> Iterator[str]:
    """An outbox with the sample in it, which tests leave as it is."""
    with fresh_outbox(postgres_server) as url:
        servers.run(filled(url))
        yield url


@pytest.fixture
async def sample_engine(sample_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(sample_url, pool_size=2)
    yield engine
    await engine.dispose()


@pytest.fixture
async def sample(sample_engine: AsyncEngine) -> AsyncIterator[Visitor]:
    """Somebody at this machine who looks at the sample."""
    async with visiting(Dashboard(SETTINGS, sample_engine)) as visitor:
        yield visitor


@pytest.fixture(scope="session")
def own_outbox_url(postgres_server: servers.Server) -> Iterator[str]:
    with fresh_outbox(postgres_server) as url:
        yield url


@pytest.fixture
async def outbox(own_outbox_url: str) -> AsyncIterator[Outbox]:
    connection = await asyncpg.connect(own_outbox_url, server_settings={"synchronous_commit": "off"})
    yield Outbox(Desk(connection), own_outbox_url)
    await connection.execute(f"TRUNCATE {TABLES} RESTART IDENTITY")
    await connection.close()


@pytest.fixture
async def engine(own_outbox_url: str) -> AsyncIterator[AsyncEngine]:
    made = create_engine(own_outbox_url, pool_size=2, pool_timeout=1.0)
    yield made
    await made.dispose()


@pytest.fixture
async def visitor(engine: AsyncEngine) -> AsyncIterator[Visitor]:
    """Somebody at this machine who looks at an outbox of the test's own."""
    async with visiting(Dashboard(SETTINGS, engine)) as found:
        yield found
