"""Whoever may create in a schema runs nothing with the rights of others (R12).

A function's name means the one that fits its arguments best, in whichever schema of the search path it lies. What
relays and commands ask is tried in `tests/integration/relay/test_pinned.py`; here are migrations, and the doctor.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from outbox_kernel.errors import ForeignCode
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.operations import desk
from outbox_kernel.infrastructure.operations.health_of_ground import examine_ground
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.settings import Settings

ONLY = Settings(contexts=())
# What fits what is migrated better than the server's own, which take any type, or one beside it.
SPRUNG = "LANGUAGE plpgsql AS $$ BEGIN RAISE 'the trap has sprung'; END $$"
AT_ONCE = f"CREATE FUNCTION hashtextextended(text, integer) RETURNS bigint {SPRUNG}"
LATER = {
    "array_agg(text)": (
        f"CREATE FUNCTION trap(text[], text) RETURNS text[] {SPRUNG};"
        "CREATE AGGREGATE array_agg(text) (SFUNC = trap, STYPE = text[])"
    ),
    "jsonb_object_agg(text,jsonb)": (
        f"CREATE FUNCTION trap(jsonb, text, jsonb) RETURNS jsonb {SPRUNG};"
        "CREATE AGGREGATE jsonb_object_agg(text, jsonb) (SFUNC = trap, STYPE = jsonb)"
    ),
    "unnest(text[])": f"CREATE FUNCTION unnest(text[]) RETURNS SETOF text {SPRUNG}",
}


@pytest.fixture(params=[None, "events"])
def settings(request: pytest.FixtureRequest) -> Settings:
    return Settings(contexts=(), outbox_schema=request.param)


async def executed(url: str, *statements: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return [await connection.execute(statement) for statement in statements]
    finally:
        await connection.close()


async def migrated(url: str, settings: Settings) -> None:
    engine = create_engine(url)
    try:
        await migrate(engine, settings)
    finally:
        await engine.dispose()


def planted(settings: Settings, *statements: str) -> list[str]:
    schema = settings.outbox_schema or "public"
    return [f"CREATE SCHEMA IF NOT EXISTS {schema}; SET search_path = {schema}", *statements]


async def test_what_a_migration_calls_is_the_servers_own(empty_postgres_url: str, settings: Settings) -> None:
    """It is run by the owner of the tables, who is a superuser more often than not."""
    await executed(empty_postgres_url, *planted(settings, AT_ONCE))
    await migrated(empty_postgres_url, settings)


@pytest.mark.parametrize("name", LATER)
async def test_what_a_view_would_call_of_somebodys_own_is_refused_and_nothing_is_migrated(
    empty_postgres_url: str, settings: Settings, name: str
) -> None:
    """Later it would run as whoever reads the view: a relay, an operator."""
    *_, function = await executed(empty_postgres_url, *planted(settings, LATER[name]))
    with pytest.raises(ForeignCode, match="REVOKE CREATE on the schemas of the search path") as refused:
        await migrated(empty_postgres_url, settings)
    [found] = refused.value.names
    assert found.rpartition(".")[2] == name
    kind = "AGGREGATE" if function == "CREATE AGGREGATE" else "FUNCTION"
    await executed(empty_postgres_url, *planted(settings, f"DROP {kind} {name}"))
    await migrated(empty_postgres_url, settings)


async def doctor_on_schemas(url: str) -> Any:
    async with desk(Settings(contexts=(), database_url=url)) as asked:
        return {each.check: each for each in await examine_ground(asked)}["schemas"]


async def test_a_schema_in_which_everybody_may_create_is_told(empty_postgres_url: str) -> None:
    """The application's own sessions, and its handlers', look where they always did."""
    await migrated(empty_postgres_url, ONLY)
    assert (await doctor_on_schemas(empty_postgres_url)).state == "ok"
    await executed(empty_postgres_url, "GRANT CREATE ON SCHEMA public TO PUBLIC")
    told = await doctor_on_schemas(empty_postgres_url)
    assert (told.state, told.remedy) == ("warn", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    assert "everybody may create in public, where sessions of user" in told.detail
    await executed(empty_postgres_url, str(told.remedy))
    assert (await doctor_on_schemas(empty_postgres_url)).state == "ok"
