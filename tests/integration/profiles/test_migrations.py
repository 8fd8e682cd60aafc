"""The migrations of profiles: declared = replayed, down and up again (O1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from contexts.profiles.persistence import profiles_metadata
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.outbox.migrator import downgrade, migrate
from outbox_kernel.infrastructure.settings import Settings

SCHEMA = """
SELECT format('%s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint
WHERE conrelid = to_regclass('profiles')
UNION ALL
SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename = 'profiles'
UNION ALL
SELECT format('%s %s %s %s', column_name, data_type, is_nullable, column_default)
FROM information_schema.columns WHERE table_schema = 'public' AND table_name = 'profiles'
ORDER BY 1
"""


@pytest.fixture
async def engine(empty_postgres_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(empty_postgres_url)
    yield engine
    await engine.dispose()


async def schema(connection: AsyncConnection) -> list[str]:
    return list(await connection.scalars(text(SCHEMA)))


def differences(connection: Connection) -> list[Any]:
    options = {
        "compare_server_default": True,
        "include_name": lambda name, kind, _: kind != "table" or name in profiles_metadata.tables,
    }
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), profiles_metadata))


async def test_the_declared_table_is_the_replayed_migrations_up_and_down_and_up_again(
    engine: AsyncEngine, empty_postgres_url: str
) -> None:
    settings = Settings(database_url=empty_postgres_url, contexts=("contexts.profiles",))
    async with engine.begin() as connection:
        await connection.run_sync(profiles_metadata.create_all)
        declared = await schema(connection)
        await connection.run_sync(profiles_metadata.drop_all)
        assert await schema(connection) == []
    await migrate(engine, settings)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []
        assert await schema(connection) == declared
        assert any(line.startswith("profiles_account_id_key UNIQUE") for line in declared)

    steps = await downgrade(engine, "profiles@base", settings)
    assert [step.revision for step in steps] == ["profiles_0001"]
    async with engine.connect() as connection:
        assert await schema(connection) == []
        assert await connection.scalar(text("SELECT to_regclass('outbox_events') IS NOT NULL"))
    assert [step.revision for step in await migrate(engine, settings)] == ["profiles_0001"]
    async with engine.connect() as connection:
        assert await schema(connection) == declared
