"""A relay's own sessions work with what they need, whatever their role begins with or stands in the way (R12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from sqlalchemy import text

from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.errors import PermissionDenied
from outbox_kernel.infrastructure.operations import desk, stories
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.operations.purging import purge
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.postgres.pinning import BY_INDEX
from outbox_kernel.infrastructure.relay.listener import Listener
from outbox_kernel.infrastructure.settings import Settings
from tests import servers
from tests.bouncer import missing_pgbouncer, url_through_pooler
from tests.relaying import Recorder, Stage, handler
from tests.waiting import until

pytestmark = pytest.mark.servers

# As a role, or its database, may have sessions begin.
HOSTILE = {
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "search_path": "trap, public",
    "statement_timeout": "20ms",
    "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "100ms",
    "idle_session_timeout": "100ms",
    "standard_conforming_strings": "off",
    "enable_indexscan": "on",
    "enable_seqscan": "on",
}
PINNED = {
    "transaction_isolation": "read committed",
    "transaction_read_only": "off",
    "search_path": "pg_catalog, pg_temp",
    "row_security": "off",
    "statement_timeout": "15s",
    "lock_timeout": "15s",
    "idle_in_transaction_session_timeout": "5s",
    "idle_session_timeout": "0",
    "standard_conforming_strings": "on",
    **BY_INDEX,
}
# What fits the calls of our statements better than the server's own, which take anything: it would run as the relay.
TRAP = """
CREATE SCHEMA trap;
CREATE FUNCTION trap.sprung() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'the trap has sprung'; END $$;
CREATE FUNCTION trap.json_build_object(text, text, text, boolean, text, numeric, text, bigint, text, bigint)
  RETURNS json LANGUAGE sql AS 'SELECT trap.sprung()::json';
CREATE FUNCTION trap.json_build_object(text, text, text, boolean, text, numeric, text, boolean)
  RETURNS json LANGUAGE sql AS 'SELECT trap.sprung()::json';
CREATE FUNCTION trap.concatenated(text, uuid) RETURNS text LANGUAGE sql AS 'SELECT trap.sprung()';
CREATE OPERATOR trap.|| (LEFTARG = text, RIGHTARG = uuid, FUNCTION = trap.concatenated);
CREATE FUNCTION trap.at_least(bigint, integer) RETURNS boolean LANGUAGE sql AS 'SELECT trap.sprung() IS NULL';
CREATE OPERATOR trap.>= (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = trap.at_least);
CREATE FUNCTION trap.now_and_then(double precision, interval) RETURNS interval LANGUAGE sql
  AS 'SELECT trap.sprung()::interval';
"""


@asynccontextmanager
async def beginning_with(witness: Any, settings: dict[str, str]) -> AsyncIterator[None]:
    """Let each new session of this database and user begin with settings."""
    at = f"ALTER ROLE CURRENT_USER IN DATABASE {await witness.fetchval('SELECT current_database()')}"
    for name, value in settings.items():
        given = value if name == "search_path" else f"'{value}'"
        await witness.execute(f"{at} SET {name} = {given}")
    try:
        yield
    finally:
        await witness.execute(f"{at} RESET ALL")


@pytest_asyncio.fixture
async def trap(stage: Stage) -> AsyncIterator[None]:
    await stage.witness.execute(TRAP)
    yield
    await stage.witness.execute("DROP SCHEMA trap CASCADE")


async def settings_of(line: Line) -> dict[str, str]:
    rows = await line.fetch(
        "SELECT name, current_setting(name) AS value FROM unnest($1::text[]) AS name", [*PINNED]
    )
    return {row["name"]: row["value"] for row in rows}


@pytest.mark.usefixtures("trap")
async def test_its_connections_work_with_what_they_need(stage: Stage) -> None:
    async with beginning_with(stage.witness, HOSTILE):
        line = stage.line()
        assert await settings_of(line) == PINNED
        [[row]] = await line.transact([("SELECT current_setting('transaction_isolation') AS isolation", ())])
        assert row["isolation"] == "read committed"
        [row] = await line.fetch("SELECT pg_sleep(0.05), 1 AS slow")
        assert row["slow"] == 1


@pytest.mark.usefixtures("trap")
async def test_a_relay_delivers_whatever_its_sessions_begin_with(stage: Stage) -> None:
    """With failures, retries, a takeover of deliveries and a purge."""
    recorder, failing = Recorder(), Recorder().fail("b", times=2)
    await stage.put("a", "b", "c", of=uuid4())
    # Which use no session, of whose beginning they would know.
    handlers = [handler("h", recorder), handler("failing", failing)]
    async with beginning_with(stage.witness, HOSTILE):
        await stage.drain(*handlers)
        await stage.drain(*handlers, at=10)
        await stage.drain(*handlers, at=30)
        assert recorder.seen == ["a", "b", "c"]
        assert failing.seen == ["a", "b", "b", "b", "c"]
        async with desk(Settings(database_url=stage.engine.url.render_as_string(hide_password=False))) as at:
            assert (await overview(at)).backlog.delivered == 3
            assert len(await stories.events(at, status="delivered")) == 3
            assert (await purge(at, 0)).events == 1  # what had a delivery is kept for a while
    assert await stage.events() == {"b": "delivered", "c": "delivered"}


@pytest.mark.usefixtures("trap")
async def test_a_listener_that_is_quiet_for_long_is_not_cut_off(stage: Stage) -> None:
    heard: list[str] = []
    async with beginning_with(stage.witness, {**HOSTILE, "idle_session_timeout": "50ms"}):
        listener = Listener(stage.engine, "some_channel", heard.append, stage.line())
        listening = asyncio.create_task(listener.run())

        async def has_heard() -> bool:
            return bool(heard)

        await until(has_heard)
        connections = await stage.witness.fetch(LISTENERS)
        await stage.line().fetch("SELECT pg_sleep(0.2)")
        assert await stage.witness.fetch(LISTENERS) == connections
        listening.cancel()
        await asyncio.wait([listening])


LISTENERS = """
SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()
"""


@pytest.fixture
def pooled_url(bank_url: str) -> Iterator[str]:
    """The bank through a pooler with so few connections that each meets all of its clients."""
    servers.require(missing_pgbouncer())
    with url_through_pooler(bank_url, connections=3) as url:
        yield url


@pytest.mark.usefixtures("trap")
async def test_behind_a_pooler_each_transaction_does_and_the_next_client_knows_nothing_of_it(
    stage: Stage, pooled_url: str
) -> None:
    recorder, failing = Recorder(), Recorder().fail("b")
    await stage.put("a", "b", "c", of=uuid4())
    usual = stage.engine
    async with beginning_with(stage.witness, HOSTILE):
        stage.engine = create_engine(pooled_url)
        try:
            assert await settings_of(stage.line()) == PINNED
            await stage.drain(handler("h", recorder), handler("failing", failing))
            await stage.drain(handler("h", recorder), handler("failing", failing), at=10)
            async with desk(Settings(database_url=pooled_url)) as at, stage.engine.connect() as client:
                assert (await overview(at)).backlog.delivered == 3
                assert (await purge(at, 0)).events == 1  # what had a delivery is kept for a while
                told = {name: await client.scalar(text(f"SHOW {name}")) for name in HOSTILE}
        finally:
            await stage.engine.dispose()
            stage.engine = usual
    assert (recorder.seen, failing.seen) == (["a", "b", "c"], ["a", "b", "b", "c"])
    assert told == HOSTILE


async def test_what_row_security_would_hide_is_an_error_with_its_remedy(stage: Stage) -> None:
    """It would count as delivered otherwise, to nobody."""
    role = f"hidden_{uuid4().hex}"
    await stage.put("a")
    await stage.drain(handler("h", Recorder()))
    await stage.witness.execute(
        f"CREATE ROLE {role}; GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}; "
        "ALTER TABLE outbox_events ENABLE ROW LEVEL SECURITY"
    )
    engine = create_engine(stage.engine.url, connect_args={"server_settings": {"role": role}})
    usual, stage.engine = stage.engine, engine
    try:
        with pytest.raises(PermissionDenied, match=r"policies keep rows .* BYPASSRLS"):
            await stage.drain(handler("h", Recorder()))
    finally:
        stage.engine = usual
        await engine.dispose()
        await stage.witness.execute("ALTER TABLE outbox_events DISABLE ROW LEVEL SECURITY")
        await stage.witness.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


# --- handlers, whose sessions are the application's ----------------------------------------------------


async def test_handlers_that_lose_races_of_serialisable_transactions_are_not_charged(
    stage: Stage, bank_url: str
) -> None:
    """R7: a serialisation failure is an outage, and happens to whoever writes beside others."""
    seen: list[str] = []

    async def count(event: Any) -> None:
        async with stage.uow() as uow:
            number = await uow.session.scalar(text("SELECT count(*) FROM bank_journal"))
            await uow.session.execute(
                text("INSERT INTO bank_journal (line) VALUES (:line)"), {"line": f"{event.what} {number}"}
            )
            await uow.commit()
            seen.append(event.what)

    whats = [f"event {number}" for number in range(40)]
    await stage.put(*whats)
    async with beginning_with(stage.witness, {"default_transaction_isolation": "serializable"}):
        await stage.engine.dispose()
        relay = stage.relay(handler("h", count), at=None)
        running = asyncio.create_task(relay.run())

        async def is_delivered() -> bool:
            return set((await stage.events()).values()) == {"delivered"}

        await until(is_delivered)
        relay.stop()
        await running
        await stage.engine.dispose()
    assert sorted(seen) == sorted(whats)
    assert len(await stage.journal()) == len(whats)
    assert {
        row["attempts"] for row in await stage.witness.fetch("SELECT attempts FROM outbox_deliveries")
    } <= {0}


async def test_handlers_of_a_role_that_may_only_read_stand_still_uncharged(stage: Stage) -> None:
    async def write(event: Any) -> None:
        await stage.enter(event.what)

    await stage.put("a")
    async with beginning_with(stage.witness, {"default_transaction_read_only": "on"}):
        await stage.engine.dispose()
        relay = stage.relay(handler("h", write))
        await relay.run_until_idle()
        assert "read-only" in relay.paused["h"]
        await stage.engine.dispose()
    assert (await stage.deliveries(), await stage.events()) == ({}, {"a": "pending"})
    await stage.drain(handler("h", write))
    assert await stage.journal() == ["a"]
