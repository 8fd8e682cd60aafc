"""One server for all that is sent to it, as `outbox api` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from attrs import frozen

from tests import servers
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
