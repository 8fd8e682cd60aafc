"""The suite runs on each adapter: in memory, in memory and on PostgreSQL, with each style of mapping."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.outbox import outbox_metadata
from tests import servers
from tests.conformance import adapters
from tests.conformance.wallets import DeclaredWallet, MappedWallet, PlainWallet, wallets_metadata


@pytest.fixture(scope="session")
def wallets_url(postgres_server: servers.Server) -> Iterator[str]:
    with servers.fresh_database(postgres_server) as url:
        servers.run(_create_tables(url))
        yield url


async def _create_tables(url: str) -> None:
    engine = create_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(outbox_metadata.create_all)
        await connection.run_sync(wallets_metadata.create_all)
    await engine.dispose()


TRUNCATE = (
    "TRUNCATE outbox_events, outbox_arrivals, conformance_wallets, conformance_declared_wallets, "
    "conformance_slips, conformance_ledgers, conformance_payments, conformance_wire_payments RESTART IDENTITY"
)
WALLETS: dict[str, Any] = {"plain": PlainWallet, "mapped": MappedWallet, "declared": DeclaredWallet}
ENGINES = {"postgres": "wallets_engine", "psycopg": "psycopg_engine"}


@pytest.fixture(
    params=[
        *("memory, plain", "memory, mapped", "memory, declared"),
        *("postgres, mapped", "postgres, declared", "psycopg, mapped"),
    ]
)
def adapter(request: pytest.FixtureRequest) -> adapters.Adapter:
    place, _, style = request.param.partition(", ")
    if place == "memory":
        return adapters.memory(WALLETS[style])
    # Asked for only here, so that the others need no server.
    return adapters.postgres(request.getfixturevalue(ENGINES[place]), WALLETS[style])


@pytest_asyncio.fixture
async def psycopg_engine(wallets_engine: AsyncEngine) -> AsyncIterator[AsyncEngine]:
    """C9: the other driver, on the same tables."""
    engine = create_async_engine(
        wallets_engine.url.set(drivername="postgresql+psycopg"),
        connect_args={"options": "-c synchronous_commit=off"},
    )
    yield engine
    await engine.dispose()


@pytest_asyncio.fixture
async def wallets_engine(wallets_url: str) -> AsyncIterator[AsyncEngine]:
    # Nothing outlives the run, so no commit needs to wait for the disk.
    engine = create_engine(wallets_url, connect_args={"server_settings": {"synchronous_commit": "off"}})
    yield engine
    async with engine.begin() as connection:
        await connection.execute(text(TRUNCATE))
    await engine.dispose()
