"""Run the migrations: Alembic's, without an env.py, on the engine that the application has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script.revision import RevisionError
from alembic.util import CommandError
from attrs import frozen
from sqlalchemy import text

from infrastructure.database.explain import explained, sqlstate_of
from infrastructure.errors import MigrationBlocked, MigrationUnknown, ServerTooOld
from infrastructure.outbox.branches import Branch, branches
from infrastructure.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alembic.runtime.migration import MigrationInfo, RevisionStep
    from alembic.script import ScriptDirectory
    from sqlalchemy.engine import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

POSTGRES_VERSION_MIN = 15
# Another machine's whole migration is worth waiting for.
TURN_SECONDS_MAX = 60.0
# A statement that waits for a table makes every writer behind it wait too, so it gives up soon.
TABLE_LOCK_SECONDS_MAX = 5.0

_LOCK_NOT_AVAILABLE = "55P03"
# One key for all branches of a database, in which advisory locks are counted.
ADVISORY_LOCK = "hashtextextended('outbox-kernel migrate', 0)"

# From the revisions of a branch, and those the database is at, to the way to go.
Route = Callable[["ScriptDirectory", Any], Iterable["RevisionStep"]]


@frozen
class Step:
    """One revision that ran, or is to run."""

    branch: str
    revision: str
    summary: str


async def migrate(engine: AsyncEngine, settings: Settings | None = None) -> list[Step]:
    """Bring the outbox and every context found up to date; return the revisions that ran."""
    done: list[Step] = []
    for branch in branches(settings or Settings.from_environment()):
        done += await _online(engine, branch, _up)
    return done


async def downgrade(engine: AsyncEngine, target: str, settings: Settings | None = None) -> list[Step]:
    """Undo one branch down to a revision: `outbox@base`, `outbox@-1`, `accounts@accounts_0002`."""
    name, _, revision = target.partition("@")
    found = {branch.name: branch for branch in branches(settings or Settings.from_environment())}
    if name not in found or not revision:
        raise MigrationUnknown(
            f"cannot migrate down to {target!r}: write BRANCH@REVISION, such as outbox@-1, "
            f"with one of the branches {', '.join(found)}"
        )
    return await _online(
        engine,
        found[name],
        lambda scripts, heads: scripts._downgrade_revs(revision, heads),
    )


async def pending(engine: AsyncEngine, settings: Settings | None = None) -> list[Step]:
    """Name the revisions that have not run here, changing nothing."""
    waiting: list[Step] = []
    for branch in branches(settings or Settings.from_environment()):
        with _explained(engine, branch):
            async with engine.connect() as connection:
                waiting += await connection.run_sync(_pending_of, branch)
    return waiting


def migration_sql(settings: Settings | None = None) -> str:
    """Write what `migrate` does to an empty database as a script for psql."""
    script = StringIO()
    for branch in branches(settings or Settings.from_environment()):
        # "named" parameters, or every percent sign would be doubled for a driver that is not there.
        options = {"as_sql": True, "output_buffer": script, "literal_binds": True}
        _run(branch, _up, options, dialect_name="postgresql", dialect_opts={"paramstyle": "named"})
    return script.getvalue()


def _up(scripts: ScriptDirectory, heads: Any) -> Iterable[RevisionStep]:
    return scripts._upgrade_revs("heads", heads)


async def _online(engine: AsyncEngine, branch: Branch, route: Route) -> list[Step]:
    def run(connection: Connection) -> list[Step]:
        _require_server(connection)
        return _run(branch, route, {}, connection=connection)

    with _explained(engine, branch):
        async with engine.connect() as connection:
            return await connection.run_sync(run)


def _run(branch: Branch, route: Route, options: dict[str, Any], **target: Any) -> list[Step]:
    """Run one branch in one transaction, on a connection or into a script."""
    scripts = branch.scripts()
    done: list[Step] = []

    def applied(*, step: MigrationInfo, **_: object) -> None:
        done.extend(_step(branch, scripts, revision) for revision in step.up_revision_ids)

    options |= {"fn": lambda heads, _: route(scripts, heads), "on_version_apply": (applied,)}
    context = MigrationContext.configure(opts=_version_table(branch) | options, **target)
    with context.begin_transaction():
        for statement in _preamble(branch):
            context.execute(text(statement))
        # Alembic's `op` is one for the whole process: taken only now that this is the one that migrates.
        with Operations.context(context):
            context.run_migrations()
    return done


def _preamble(branch: Branch) -> Iterable[str]:
    """Wait for our turn, then take care not to make others wait; point at the schema."""
    yield f"SET LOCAL lock_timeout = '{TURN_SECONDS_MAX * 1000:.0f}ms'"
    yield f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})"
    yield f"SET LOCAL lock_timeout = '{TABLE_LOCK_SECONDS_MAX * 1000:.0f}ms'"
    if branch.schema is not None:
        # Asked first, since CREATE SCHEMA IF NOT EXISTS needs the right to create even where it exists.
        yield (
            f"DO $$ BEGIN IF to_regnamespace('{branch.schema}') IS NULL THEN "
            f'CREATE SCHEMA "{branch.schema}"; END IF; END $$'
        )
        yield f'SET LOCAL search_path = "{branch.schema}"'


def _pending_of(connection: Connection, branch: Branch) -> list[Step]:
    scripts = branch.scripts()
    heads = MigrationContext.configure(connection, opts=_version_table(branch)).get_current_heads()
    newest_first = [script.revision for script in scripts.iterate_revisions("heads", heads)]
    return [_step(branch, scripts, revision) for revision in reversed(newest_first)]


def _step(branch: Branch, scripts: ScriptDirectory, revision: str) -> Step:
    return Step(branch.name, revision, scripts.get_revision(revision).doc)


def _version_table(branch: Branch) -> dict[str, Any]:
    return {"version_table": branch.version_table, "version_table_schema": branch.schema}


def _require_server(connection: Connection) -> None:
    major = connection.dialect.server_version_info[0] if connection.dialect.server_version_info else 0
    if int(major) < POSTGRES_VERSION_MIN:
        raise ServerTooOld(
            f"the server is PostgreSQL {major}; the oldest supported is {POSTGRES_VERSION_MIN}: upgrade it"
        )


@contextmanager
def _explained(engine: AsyncEngine, branch: Branch) -> Iterator[None]:
    try:
        with explained(engine.url):
            yield
    except (CommandError, RevisionError) as error:
        raise MigrationUnknown(
            f"the migrations of {branch.name!r} cannot be followed ({str(error).rstrip('.')}): "
            "install the version of the code that has this revision, or name one that is there"
        ) from error
    except Exception as error:
        if sqlstate_of(error) != _LOCK_NOT_AVAILABLE:
            raise
        raise MigrationBlocked(
            f"the migration of {branch.name!r} gave up waiting for another session's lock and changed "
            "nothing: run it again when that long transaction or other migration is over"
        ) from error
