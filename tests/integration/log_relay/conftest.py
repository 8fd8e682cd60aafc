"""A stage per test, in one database per run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests import bank as banks
from tests import log_relaying, relaying, servers


@pytest.fixture(scope="session")
def bank_url(postgres_server: servers.Server) -> Iterator[str]:
    with banks.fresh_bank(postgres_server) as url:
        yield url


@pytest_asyncio.fixture
async def stage(bank_url: str) -> AsyncIterator[log_relaying.LogStage]:
    engine, witness = banks.engine_of(bank_url), await relaying.connected(bank_url)
    stage = await log_relaying.LogStage.on(engine, witness)
    yield stage
    await stage.close()
    await witness.close()
    await engine.dispose()


@pytest.fixture(scope="session")
def other_url(postgres_server: servers.Server) -> Iterator[str]:
    with banks.fresh_bank(postgres_server) as url:
        yield url


@pytest_asyncio.fixture
async def elsewhere(other_url: str) -> AsyncIterator[banks.Bank]:
    """A database of another service, with an outbox of its own."""
    engine = banks.engine_of(other_url)
    await banks.empty_bank(engine)
    yield banks.Bank.on(engine)
    await engine.dispose()
