"""A database that cannot hold every character is refused before it has to (R14, O1, T3)."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import asyncpg
import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from outbox_kernel.infrastructure.application import buildable_handlers
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.errors import WrongEncoding
from outbox_kernel.infrastructure.inbox.storing import Storage
from outbox_kernel.infrastructure.operations.health import examine
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.outbox.relay_tables import outbox_metadata_in
from outbox_kernel.infrastructure.readiness import database_ready
from outbox_kernel.infrastructure.relay import RelaySettings
from outbox_kernel.infrastructure.settings import Settings
from tests import servers
from tests.commands import failed_in_one_sentence, outbox
from tests.streams import Stream

TABLES = "SELECT count(*) FROM pg_class WHERE relname LIKE '%outbox%'"


async def execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
def latin_url(postgres_server: servers.Server) -> Iterator[str]:
    """A database of the Latin alphabet alone."""
    name = f"outbox_test_{uuid4().hex}"
    made = f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE_PROVIDER libc LOCALE 'C'"
    servers.run(execute(postgres_server.url, made))
    yield make_url(postgres_server.url).set(database=name).render_as_string(hide_password=False)
    servers.run(execute(postgres_server.url, f"DROP DATABASE {name} WITH (FORCE)"))


def test_it_is_not_migrated(latin_url: str) -> None:
    """O1: and nothing is made there."""
    sentence = failed_in_one_sentence(outbox("migrate", DATABASE_URL=latin_url, OUTBOX_CONTEXTS=""))
    assert "is encoded in LATIN1" in sentence
    assert "--encoding=UTF8" in sentence

    async def tables() -> int:
        connection = await asyncpg.connect(latin_url)
        try:
            return int(await connection.fetchval(TABLES))
        finally:
            await connection.close()

    assert servers.run(tables()) == 0


async def test_nobody_serves_there(latin_url: str) -> None:
    """R14: nor waits for it to change by itself."""
    settings = Settings(database_url=latin_url, contexts=())
    engine = create_engine(latin_url, poolclass=NullPool)
    try:
        with pytest.raises(WrongEncoding, match="LATIN1"):
            await database_ready(engine, settings, wait=True)
    finally:
        await engine.dispose()


async def test_doctor_names_it(latin_url: str) -> None:
    """O1."""
    checks = await examine(Settings(database_url=latin_url, contexts=()), RelaySettings(), buildable_handlers)
    [found] = [each for each in checks if each.check == "encoding"]
    assert (found.state, "LATIN1" in found.detail) == ("fail", True)
    assert "--encoding=UTF8" in str(found.remedy)


async def test_what_it_cannot_hold_is_refused_and_the_rest_is_stored(latin_url: str) -> None:
    """T3: where the tables were made before it was asked."""
    engine, events = create_engine(latin_url, poolclass=NullPool), Stream()["abc"]
    async with engine.begin() as connection:
        await connection.run_sync(outbox_metadata_in().create_all)
    line = Line(engine)
    try:
        events[1] = events[1]._replace(payload=events[1].payload.replace('"b"', '"10 €"'))
        refused = await Storage("audit").store(line, events)
    finally:
        await line.close()
        await engine.dispose()
    assert list(refused) == [1]
    assert 'no equivalent in encoding "LATIN1"' in refused[1]
