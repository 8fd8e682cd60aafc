"""One server for all that is sent to it, as `outbox api` runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from attrs import frozen

from tests import bank as banks
from tests import relaying, servers
from tests.asking import KEY
from tests.migrated import migrated_database
from tests.processes import Serving


@frozen
class Api:
    """Where it is, and its process."""

    host: str
    port: int
    serving: Serving

    @property
    def pid(self) -> int:
        return self.serving.process.pid

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@contextmanager
def serving(database: str, **settings: str) -> Iterator[Api]:
    """Serve with these settings, until the block ends; then it stops as it is told to."""
    with Serving(
        "api", "--port", "0", DATABASE_URL=database, OUTBOX_API_TOKEN_KEY=KEY, **settings
    ) as process:
        where = urlsplit(process.wait_for("API starts")["url"])
        yield Api(str(where.hostname), int(where.port or 0), process)
        assert process.stop() == 0


@pytest.fixture(scope="session")
def database(postgres_server: servers.Server) -> Iterator[str]:
    with migrated_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def api(database: str) -> Iterator[Api]:
    with serving(database) as found:
        yield found


@pytest.fixture(scope="session")
def bank_url(postgres_server: servers.Server) -> Iterator[str]:
    with banks.fresh_bank(postgres_server) as url:
        yield url


@asynccontextmanager
async def staged(bank_url: str) -> AsyncIterator[relaying.Stage]:
    """An outbox with nothing in it, and relays that end with it."""
    engine, witness = banks.engine_of(bank_url), await relaying.connected(bank_url)
    stage = await relaying.Stage.on(engine, witness)
    try:
        yield stage
    finally:
        await stage.close()
        await witness.close()
        await engine.dispose()


@pytest_asyncio.fixture
async def stage(bank_url: str) -> AsyncIterator[relaying.Stage]:
    async with staged(bank_url) as stage:
        yield stage
