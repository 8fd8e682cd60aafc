"""A bank per test, in one database per run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from sqlalchemy.orm import Session, sessionmaker

from tests import bank as banks
from tests import drivers, market, servers
from tests.drivers import Driver


@pytest.fixture(scope="session")
def bank_url(postgres_server: servers.Server) -> Iterator[str]:
    with banks.fresh_bank(postgres_server) as url:
        yield url


@pytest_asyncio.fixture
async def bank(bank_url: str) -> AsyncIterator[banks.Bank]:
    engine = banks.engine_of(bank_url)
    yield banks.Bank.on(engine)
    await banks.empty_bank(engine)
    await engine.dispose()


@pytest.fixture(params=drivers.NAMES)
async def driver(request: pytest.FixtureRequest, bank_url: str) -> AsyncIterator[Driver]:
    driver = Driver.of(request.param, bank_url)
    yield driver
    await driver.dispose()


@pytest.fixture
def sessions(driver: Driver) -> sessionmaker[Session]:
    return driver.captured(expire_on_commit=False)


@pytest_asyncio.fixture
async def shop(bank: banks.Bank) -> AsyncIterator[banks.Bank]:
    """The bank, and beside it the tables of aggregates that map themselves."""
    async with market.market_in(bank):
        yield bank
