"""Doctor: what to ask when something seems wrong, each answer with a remedy (O1, O5)."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
from sqlalchemy.pool import NullPool

from infrastructure.connections import connect
from infrastructure.database.engine import create_engine, parse_url
from infrastructure.errors import DatabaseRefusal, InfrastructureError
from infrastructure.operations.desk import Desk
from infrastructure.operations.health_of_code import examine_code
from infrastructure.operations.health_of_work import examine_work
from infrastructure.operations.overview import overview
from infrastructure.operations.verdicts import Check, fail, ok, warn
from infrastructure.outbox.migrator import POSTGRES_VERSION_MIN, pending
from infrastructure.outbox.sql.inspection import SERVER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy.ext.asyncio import AsyncEngine

    from infrastructure.relay import RelaySettings
    from infrastructure.settings import Settings

CLOCK_SECONDS_MAX = 2.0
ECHO_SECONDS_MAX = 2.0


async def examine(settings: Settings, relay_settings: RelaySettings) -> list[Check]:
    """Run every check that can be run; without a database those of the code alone."""
    checks = await examine_code(settings, relay_settings)
    engine = create_engine(settings.required_database_url, poolclass=NullPool)
    try:
        checks += await _examine_database(engine, settings, relay_settings)
    finally:
        await engine.dispose()
    return checks


async def _examine_database(
    engine: AsyncEngine, settings: Settings, relay_settings: RelaySettings
) -> list[Check]:
    try:
        connection = await connect(engine.sync_engine)
    except InfrastructureError as error:
        return [fail("connection", *_halves(error))]
    try:
        at_desk = Desk(connection, settings.outbox_schema, settings.channel)
        checks = [ok("connection", f"connected to {engine.url.render_as_string(hide_password=True)}")]
        checks += await _examine_server(at_desk, settings)
        migrations = await _examine_migrations(engine, settings)
        checks += [migrations, await _examine_listening(engine, relay_settings)]
        if migrations.state != "fail":
            checks += await examine_work(at_desk, await overview(at_desk))
        return checks
    finally:
        connection.terminate()


async def _examine_server(desk: Desk, settings: Settings) -> list[Check]:
    began = time.monotonic()
    clock = await desk.clock()
    # Half of the round trip is the way here.
    ahead = (datetime.now(UTC) - clock).total_seconds() - (time.monotonic() - began) / 2
    server = await desk.fetch_one(SERVER)
    return [_version(server), _standby(server), _pooler(desk, server, settings), _clock(ahead)]


def _version(server: asyncpg.Record) -> Check:
    detail = f"PostgreSQL {server['version']}"
    if server["number"] // 10_000 < POSTGRES_VERSION_MIN:
        return fail("server", detail, f"upgrade it: the oldest supported is {POSTGRES_VERSION_MIN}")
    return ok("server", detail)


def _standby(server: asyncpg.Record) -> Check:
    if server["standby"]:
        return fail("primary", "this server is a read-only standby", "point DATABASE_URL at the primary")
    return ok("primary", "it takes writes")


def _pooler(desk: Desk, server: asyncpg.Record, settings: Settings) -> Check:
    # A pooler tells its clients a number of its own.
    if desk.connection.get_server_pid() == server["process_id"]:
        return ok("pooler", "none between here and the server")
    told = str(parse_url(settings.required_database_url).query.get("pgbouncer", "")).lower()
    if told in ("1", "true", "yes", "on"):
        return ok("pooler", "a pooler such as PgBouncer, as DATABASE_URL says")
    return warn(
        "pooler",
        "a pooler such as PgBouncer answers, and DATABASE_URL does not say so",
        "add ?pgbouncer=true to DATABASE_URL, and point OUTBOX_LISTEN_URL at the server itself",
    )


def _clock(ahead: float) -> Check:
    detail = (
        f"this machine's clock is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    )
    if abs(ahead) > CLOCK_SECONDS_MAX:
        return warn(
            "clock", detail, "synchronise both: occurred_at is the application's, all else the server's"
        )
    return ok("clock", detail)


async def _examine_migrations(engine: AsyncEngine, settings: Settings) -> Check:
    try:
        steps = await pending(engine, settings)
    except InfrastructureError as error:
        return fail("migrations", *_halves(error))
    if steps:
        names = ", ".join(step.revision for step in steps)
        return fail("migrations", f"not run yet: {names}", "run `outbox migrate`")
    return ok("migrations", "all have run")


async def _examine_listening(engine: AsyncEngine, relay_settings: RelaySettings) -> Check:
    polls = f"relays find commits only at their polls, every {relay_settings.poll_interval_seconds:g} s"
    remedy = "point OUTBOX_LISTEN_URL at the server itself: a pooler in transaction mode has no LISTEN"
    try:
        milliseconds = await _echo(engine, relay_settings)
    except TimeoutError:
        return warn(
            "listen", f"what is said on {relay_settings.channel!r} does not come back: {polls}", remedy
        )
    except (DatabaseRefusal, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        return warn("listen", f"the listener cannot connect ({error}): {polls}", remedy)
    return ok("listen", f"heard after {milliseconds:.1f} ms on channel {relay_settings.channel!r}")


async def _echo(engine: AsyncEngine, relay_settings: RelaySettings) -> float:
    """Say something as a committer does, hear it as a relay does, and return how long that took."""
    # Relays know a probe by this beginning, and leave it alone.
    word, heard = f"probe:doctor:{uuid4().hex}", asyncio.Event()

    def hear(_connection: Any, _pid: int, _channel: str, payload: object) -> None:
        if payload == word:
            heard.set()

    async with _listener(engine, relay_settings) as connection, asyncio.timeout(ECHO_SECONDS_MAX):
        await connection.add_listener(relay_settings.channel, hear)
        speaker = await connect(engine.sync_engine)
        try:
            began = time.monotonic()
            await speaker.execute(f"NOTIFY {relay_settings.channel}, '{word}'")
            await heard.wait()
            return (time.monotonic() - began) * 1_000
        finally:
            speaker.terminate()


@asynccontextmanager
async def _listener(engine: AsyncEngine, relay_settings: RelaySettings) -> AsyncIterator[asyncpg.Connection]:
    url = relay_settings.listen_url
    own = create_engine(url, poolclass=NullPool) if url else engine
    connection = await connect(own.sync_engine)
    try:
        yield connection
    finally:
        connection.terminate()
        if own is not engine:
            await own.dispose()


def _halves(error: InfrastructureError) -> tuple[str, str]:
    """Part a sentence of ours into what happened and what to do."""
    happened, _, remedy = str(error).rpartition(": ")
    return (happened, remedy) if happened else (remedy, "see the sentence")
