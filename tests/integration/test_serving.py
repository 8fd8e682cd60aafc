"""What serves waits for its database, or says why it does not (R14)."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from outbox_kernel.infrastructure import readiness
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.errors import DatabaseUnreachable, SchemaNotMigrated
from outbox_kernel.infrastructure.outbox.migrator import migrate, pending
from outbox_kernel.infrastructure.readiness import database_ready
from outbox_kernel.infrastructure.settings import Settings


async def test_waiting_it_says_once_what_it_waits_for(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings, looks, third = Settings(database_url=empty_postgres_url, contexts=()), [], asyncio.Event()

    async def look(*arguments: Any) -> Any:
        looks.append(arguments)
        if len(looks) == 3:
            third.set()
        return await pending(*arguments)

    monkeypatch.setattr(readiness, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(readiness, "pending", look)
    engine = create_engine(empty_postgres_url, poolclass=NullPool)
    try:
        waiting = asyncio.create_task(database_ready(engine, settings, wait=True))
        await asyncio.wait_for(third.wait(), 30)
        await migrate(engine, settings)
        await asyncio.wait_for(waiting, 30)
    finally:
        await engine.dispose()
    said = [record.getMessage() for record in caplog.records if record.name == "outbox.start"]
    assert len(said) == 1
    assert "is not migrated" in said[0]


async def test_a_database_that_takes_the_connection_and_says_nothing_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "ANSWER_SECONDS_MAX", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"postgresql://ada:s3cret@127.0.0.1:{mute.getsockname()[1]}/nothing"
        engine = create_engine(url, poolclass=NullPool)
        with pytest.raises(
            DatabaseUnreachable, match=r"did not answer within 0\.2 s: look at its load"
        ) as said:
            await database_ready(engine, Settings(database_url=url), wait=False)
        await engine.dispose()
    assert "s3cret" not in str(said.value)


async def test_without_a_database_in_the_url_and_with_a_schema_both_are_told(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O1: the outbox may be migrated, in another database or in another schema."""
    url = make_url(empty_postgres_url)
    monkeypatch.setenv("PGDATABASE", url.database or "")
    engine = create_engine(url.set(database=""), poolclass=NullPool)
    settings = Settings(outbox_schema="nowhere", contexts=())
    with pytest.raises(SchemaNotMigrated) as said:
        await database_ready(engine, settings, wait=False)
    await engine.dispose()
    assert str(said.value).startswith(
        "the default database (DATABASE_URL names none) is not migrated (outbox_0001 "
    )
    assert str(said.value).endswith(
        ": run `outbox migrate`, or correct OUTBOX_SCHEMA if its tables are not to be in nowhere"
    )
