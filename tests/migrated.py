"""A database of its own with the tables of all contexts, for the tests of one file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.pool import NullPool

from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.settings import Settings
from tests import servers


@contextmanager
def migrated_database(server: servers.Server) -> Iterator[str]:
    """The URL of it; dropped afterwards."""
    with servers.fresh_database(server) as url:
        servers.run(_migrated(url))
        yield url


async def _migrated(url: str) -> None:
    engine = create_engine(url, poolclass=NullPool)
    try:
        await migrate(engine, Settings(database_url=url))
    finally:
        await engine.dispose()
