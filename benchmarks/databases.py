"""A database of one's own to measure in: on the server of DATABASE_URL, else on the embedded PostgreSQL."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import asyncpg
from sqlalchemy.engine import make_url

from outbox_kernel.infrastructure.postgres.embedded import EmbeddedPostgres
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def measured_database() -> AsyncIterator[str]:
    """Yield the URL of a fresh database on a durable server, and drop it afterwards."""
    async with measured_server() as server, database_on(server) as url:
        yield url


@asynccontextmanager
async def measured_server() -> AsyncIterator[str]:
    """Yield the URL of a database from which others can be made, on a durable server."""
    server = Settings.from_environment().database_url
    if server:
        yield server
        return
    # A folder of its own makes the embedded server keep its promises to the disk, as production's does.
    with tempfile.TemporaryDirectory(prefix="outbox-bench-") as folder:
        # A server started by root runs as another user, who must get in.
        Path(folder).chmod(0o711)  # noqa: ASYNC240 - nothing else runs in this loop
        async with EmbeddedPostgres(f"{folder}/data") as embedded:
            yield embedded.url


@asynccontextmanager
async def database_on(server: str) -> AsyncIterator[str]:
    """Yield the URL of a fresh database on the server of this URL, and drop it afterwards."""
    name = f"outbox_bench_{uuid4().hex[:12]}"
    admin = await asyncpg.connect(dsn_of(server))
    try:
        await admin.execute(f"CREATE DATABASE {name}")
        try:
            yield make_url(server).set(database=name).render_as_string(hide_password=False)
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


def dsn_of(url: str) -> str:
    """Return the URL as asyncpg reads it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


async def bare_connection(url: str) -> asyncpg.Connection:
    """Connect as a floor does: asyncpg and nothing else."""
    return await asyncpg.connect(dsn_of(url))
