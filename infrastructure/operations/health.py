"""Doctor: what to ask when something seems wrong, each answer with a remedy (O1, O5)."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
from sqlalchemy.pool import NullPool

from outbox_kernel.infrastructure.discovery import project_folder
from outbox_kernel.infrastructure.errors import InfrastructureError, WrongEncoding
from outbox_kernel.infrastructure.operations.desk import Desk, in_sentences, pinned_desk
from outbox_kernel.infrastructure.operations.health_of_aggregates import examine_aggregates
from outbox_kernel.infrastructure.operations.health_of_alembic import examine_alembic
from outbox_kernel.infrastructure.operations.health_of_broker import examine_broker
from outbox_kernel.infrastructure.operations.health_of_code import examine_code
from outbox_kernel.infrastructure.operations.health_of_ground import examine_ground
from outbox_kernel.infrastructure.operations.health_of_hearing import examine_hearing
from outbox_kernel.infrastructure.operations.health_of_keys import examine_keys
from outbox_kernel.infrastructure.operations.health_of_rights import examine_rights
from outbox_kernel.infrastructure.operations.health_of_tables import examine_tables
from outbox_kernel.infrastructure.operations.health_of_work import examine_work
from outbox_kernel.infrastructure.operations.limits import ANSWER_SECONDS_MAX, CLOCK_SECONDS_MAX
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.operations.verdicts import Check, fail, halves, ok, warn
from outbox_kernel.infrastructure.outbox.limits import POSTGRES_VERSION_MIN
from outbox_kernel.infrastructure.outbox.migrator import ENCODING, pending
from outbox_kernel.infrastructure.outbox.sql.inspection import SERVER
from outbox_kernel.infrastructure.postgres.connections import connect
from outbox_kernel.infrastructure.postgres.engine import create_engine, parse_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from outbox_kernel.infrastructure.operations.health_of_code import FindHandlers
    from outbox_kernel.infrastructure.relay import RelaySettings
    from outbox_kernel.infrastructure.settings import Settings


async def examine(settings: Settings, relay_settings: RelaySettings, find: FindHandlers) -> list[Check]:
    """Run every check that can be run; without a database those of the code alone.

    What finds the handlers, and makes each, is the application's: it stands above this package.
    """
    checks = await examine_code(settings, relay_settings, find)
    checks += examine_alembic(dict.fromkeys((Path.cwd(), project_folder())))
    engine = create_engine(settings.required_database_url, poolclass=NullPool)
    try:
        checks += await _examine_database(engine, settings, relay_settings)
    finally:
        await engine.dispose()
    return [*checks, *await examine_broker(settings)]


async def _examine_database(
    engine: AsyncEngine, settings: Settings, relay_settings: RelaySettings
) -> list[Check]:
    try:
        with in_sentences(engine.url):
            connection = await connect(engine.sync_engine)
            at_desk = await pinned_desk(connection, settings)
    except InfrastructureError as error:
        return [fail("connection", *halves(error))]
    try:
        checks = [ok("connection", f"connected to {engine.url.render_as_string(hide_password=True)}")]
        # One after the other, each for itself: what one cannot answer says nothing of the others.
        checks += await _answered("server", engine, _examine_server(at_desk, settings))
        checks += await _answered("migrations", engine, _examine_migrations(engine, settings))
        checks += await _answered("listen", engine, examine_hearing(engine, relay_settings))
        checks += await _answered("sessions", engine, _unless_unmigrated(examine_ground(at_desk), checks))
        checks += await _answered("rights", engine, _unless_unmigrated(examine_rights(at_desk), checks))
        checks += await _answered("work", engine, _unless_unmigrated(_examine_work(at_desk), checks))
        checks += await _answered("tables", engine, examine_tables(at_desk))
        checks += await _answered("aggregates", engine, _examine_aggregates(engine))
        checks += await _answered("master keys", engine, _examine_keys(at_desk, settings, checks))
        return checks
    finally:
        connection.terminate()


async def _answered(name: str, engine: AsyncEngine, checks: Awaitable[list[Check]]) -> list[Check]:
    """Give the checks, or the one that says why they could not be made."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            with in_sentences(engine.url):
                return await checks
    except TimeoutError:
        detail = f"the database did not answer within {ANSWER_SECONDS_MAX:g} s"
        return [fail(name, detail, "look at its load, its locks and the way to it")]
    except InfrastructureError as error:
        return [fail(name, *halves(error))]


async def _examine_server(desk: Desk, settings: Settings) -> list[Check]:
    began = time.monotonic()
    clock = await desk.clock()
    # Half of the round trip is the way here.
    ahead = (datetime.now(UTC) - clock).total_seconds() - (time.monotonic() - began) / 2
    server = await desk.run_one(SERVER)
    return [
        *(_version(server), _standby(server), _encoding(server)),
        *(_pooler(desk, server, settings), _clock(ahead)),
    ]


def _version(server: asyncpg.Record) -> Check:
    detail = f"PostgreSQL {server['version']}"
    if server["number"] // 10_000 < POSTGRES_VERSION_MIN:
        return fail("server", detail, f"upgrade it: the oldest supported is {POSTGRES_VERSION_MIN}")
    return ok("server", detail)


def _standby(server: asyncpg.Record) -> Check:
    if server["standby"]:
        return fail("primary", "this server is a read-only standby", "point DATABASE_URL at the primary")
    return ok("primary", "it takes writes")


def _encoding(server: asyncpg.Record) -> Check:
    if server["encoding"] == ENCODING:
        return ok("encoding", ENCODING)
    wrong = WrongEncoding(f'database "{server["database"]}"', server["encoding"])
    return fail("encoding", *halves(wrong))


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


async def _examine_migrations(engine: AsyncEngine, settings: Settings) -> list[Check]:
    steps = await pending(engine, settings)
    if steps:
        names = ", ".join(step.revision for step in steps)
        return [fail("migrations", f"not run yet: {names}", "run `outbox migrate`")]
    return [ok("migrations", "all have run")]


async def _examine_keys(desk: Desk, settings: Settings, so_far: Sequence[Check]) -> list[Check]:
    return [] if _is_unmigrated(so_far) else await examine_keys(desk, settings)


async def _examine_work(desk: Desk) -> list[Check]:
    return await examine_work(desk, await overview(desk))


async def _examine_aggregates(engine: AsyncEngine) -> list[Check]:
    # The application's own tables are where its own search path finds them.
    connection = await connect(engine.sync_engine)
    try:
        return await examine_aggregates(Desk(connection))
    finally:
        connection.terminate()


async def _unless_unmigrated(checks: Awaitable[list[Check]], so_far: Sequence[Check]) -> list[Check]:
    try:
        return await checks
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError):
        if _is_unmigrated(so_far):
            return []  # that is said already
        raise


def _is_unmigrated(so_far: Sequence[Check]) -> bool:
    return any(each.check == "migrations" and each.state == "fail" for each in so_far)
