"""Run the migrations: Alembic's, without an env.py, on the engine that the application has."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any, TypeVar

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script.revision import RevisionError
from alembic.util import CommandError
from attrs import frozen
from sqlalchemy import func, select, text

from outbox_kernel.infrastructure.errors import (
    MigrationBlocked,
    MigrationFailed,
    MigrationUnknown,
    NameTaken,
    SchemaNotMigrated,
    ServerTooOld,
    TablesMissing,
    WrongEncoding,
)
from outbox_kernel.infrastructure.outbox.branches import OUTBOX_BRANCH, Branch, branches, told
from outbox_kernel.infrastructure.outbox.foreign_code import require_none
from outbox_kernel.infrastructure.outbox.key_table import outbox_subject_keys
from outbox_kernel.infrastructure.outbox.limits import (
    POSTGRES_VERSION_MIN,
    TABLE_LOCK_SECONDS_MAX,
    TURN_SECONDS_MAX,
)
from outbox_kernel.infrastructure.outbox.statements import count_undelivered
from outbox_kernel.infrastructure.outbox.tables import outbox_events_in
from outbox_kernel.infrastructure.outbox.views import LOG_VIEWS
from outbox_kernel.infrastructure.postgres.explain import database_of, explained, sqlstate_of
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alembic.runtime.migration import MigrationInfo, RevisionStep
    from alembic.script import ScriptDirectory
    from sqlalchemy.engine import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")

ENCODING = "UTF8"

_LOCK_NOT_AVAILABLE = "55P03"
_SETTINGS = "SELECT current_setting('search_path'), current_setting('lock_timeout')"
_SET_BACK = "SELECT set_config('search_path', :path, true), set_config('lock_timeout', :patience, true)"
# One key for all branches of a database, in which advisory locks are counted.
ADVISORY_LOCK = "pg_catalog.hashtextextended('outbox-kernel migrate', 0)"

# From the revisions of a branch, and those the database is at, to the way to go.
Route = Callable[["ScriptDirectory", Any], Iterable["RevisionStep"]]


@frozen
class Step:
    """One revision that ran, or is to run."""

    branch: str
    revision: str
    summary: str


@frozen
class Loss:
    """What a way down takes along."""

    steps: list[Step]
    undelivered: int | None
    """How many events the outbox holds that are not delivered, if it is dropped."""


async def migrate(engine: AsyncEngine, settings: Settings | None = None) -> list[Step]:
    """Bring the outbox and every context found up to date; return the revisions that ran."""
    done: list[Step] = []
    found = _readable(branches(settings or Settings.from_environment()))
    await require_encoding(engine)
    for branch in found:
        done += await _online(engine, branch, _up)
        if branch.name == OUTBOX_BRANCH:
            await _asked(engine, branch, _require_tables)
    return done


def upgrade_on(connection: Connection, branch: Branch) -> list[Step]:
    """Bring one branch up to date on a connection of somebody's, within the transaction that it may be in."""
    _require_server(connection)
    with _followed(branch):
        if not connection.in_transaction():
            return _run(branch, _up, {}, connection=connection)
        # What goes on in that transaction goes on as before.
        path, patience = connection.execute(text(_SETTINGS)).one()
        done = _run(branch, _up, {}, connection=connection)
        connection.execute(text(_SET_BACK), {"path": path, "patience": patience})
        return done


async def downgrade(engine: AsyncEngine, target: str, settings: Settings | None = None) -> list[Step]:
    """Undo one branch down to a revision: `outbox@base`, `outbox@-1`, `accounts@accounts_0002`."""
    branch, revision = _target(target, settings or Settings.from_environment())
    return await _online(engine, branch, lambda scripts, heads: scripts._downgrade_revs(revision, heads))


async def loss(engine: AsyncEngine, target: str, settings: Settings | None = None) -> Loss:
    """Say what `downgrade` to there would undo, changing nothing."""
    branch, revision = _target(target, settings or Settings.from_environment())
    return await _asked(engine, branch, lambda connection, _: _loss(connection, branch, revision))


async def pending(engine: AsyncEngine, settings: Settings | None = None) -> list[Step]:
    """Name the revisions that have not run here, changing nothing."""
    waiting: list[Step] = []
    for branch in branches(settings or Settings.from_environment()):
        waiting += await _asked(engine, branch, _pending_of)
    return waiting


async def require_encoding(engine: AsyncEngine) -> None:
    """Raise WrongEncoding unless the database can hold every character."""
    with explained(engine.url):
        async with engine.connect() as connection:
            encoding = await connection.scalar(text("SELECT current_setting('server_encoding')"))
    if encoding != ENCODING:
        raise WrongEncoding(database_of(engine.url), str(encoding))


def migration_sql(settings: Settings | None = None) -> str:
    """Write what `migrate` does to an empty database as a script for psql."""
    script = StringIO()
    for branch in branches(settings or Settings.from_environment()):
        # "named" parameters, or every percent sign would be doubled for a driver that is not there.
        options = {"as_sql": True, "output_buffer": script, "literal_binds": True}
        with _followed(branch):
            _run(branch, _up, options, dialect_name="postgresql", dialect_opts={"paramstyle": "named"})
    return script.getvalue()


def _up(scripts: ScriptDirectory, heads: Any) -> Iterable[RevisionStep]:
    return scripts._upgrade_revs("heads", heads)


def _readable(found: list[Branch]) -> list[Branch]:
    """Refuse a branch that cannot be read before any other runs."""
    for branch in found:
        branch.scripts()
    return found


def _target(target: str, settings: Settings) -> tuple[Branch, str]:
    name, _, revision = target.partition("@")
    found = {branch.name: branch for branch in branches(settings)}
    if name not in found or not revision:
        raise MigrationUnknown(
            f"cannot migrate down to {target!r}: write BRANCH@REVISION, such as outbox@-1, "
            f"with one of the branches {', '.join(found)}"
        )
    return found[name], revision


async def _asked(engine: AsyncEngine, branch: Branch, question: Callable[[Connection, Branch], T]) -> T:
    with _explained(engine, branch):
        async with engine.connect() as connection:
            return await connection.run_sync(question, branch)


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
    context = _configured(opts=_version_table(branch) | options, **target)
    with context.begin_transaction():
        for statement in _preamble(branch):
            context.execute(text(statement))
        # Alembic's `op` is one for the whole process: taken only now that this is the one that migrates.
        with Operations.context(context):
            context.run_migrations()
        if branch.name == OUTBOX_BRANCH and context.connection is not None and not context.as_sql:
            require_none(context.connection)
    return done


def _preamble(branch: Branch) -> Iterable[str]:
    """Wait for our turn, then take care not to make others wait; point at the schema."""
    yield f"SET LOCAL lock_timeout = '{TURN_SECONDS_MAX * 1000:.0f}ms'"
    yield f"SELECT pg_catalog.pg_advisory_xact_lock({ADVISORY_LOCK})"
    yield f"SET LOCAL lock_timeout = '{TABLE_LOCK_SECONDS_MAX * 1000:.0f}ms'"
    if branch.schema is not None:
        # Asked first, since CREATE SCHEMA IF NOT EXISTS needs the right to create even where it exists.
        yield (
            f"DO $$ BEGIN IF pg_catalog.to_regnamespace('{branch.schema}') IS NULL THEN "
            f'CREATE SCHEMA "{branch.schema}"; END IF; END $$'
        )
        yield f'SET LOCAL search_path = "{branch.schema}"'


def _heads_of(connection: Connection, branch: Branch) -> Any:
    return _configured(connection=connection, opts=_version_table(branch)).get_current_heads()


def _configured(**given: Any) -> MigrationContext:
    """Configure Alembic without the lines at INFO by which it says so: in a serving application nobody asked."""
    talking = logging.getLogger("alembic.runtime.migration")
    talking.addFilter(_is_trouble)
    try:
        return MigrationContext.configure(**given)
    finally:
        talking.removeFilter(_is_trouble)


def _is_trouble(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING


def _loss(connection: Connection, branch: Branch, revision: str) -> Loss:
    scripts = branch.scripts()
    route: Any = scripts._downgrade_revs(revision, _heads_of(connection, branch))
    undone = [each.revision for each in route]
    steps = [_step(branch, scripts, each.revision) for each in undone]
    if branch.name != OUTBOX_BRANCH or all(each.down_revision for each in undone):
        return Loss(steps, None)
    _require_tables(connection, branch)
    return Loss(steps, connection.execute(count_undelivered(branch.schema)).scalar_one())


def _require_tables(connection: Connection, branch: Branch) -> None:
    """Hold what the version table says against what is there; whoever drops a table may not know of both."""
    events = outbox_events_in(branch.schema)
    names = [
        events.name,
        outbox_subject_keys.name,
        *LOG_VIEWS,
        *sorted(str(index.name) for index in events.indexes),
    ]
    prefix = "" if branch.schema is None else f"{branch.schema}."
    there = select(*(func.to_regclass(f"{prefix}{name}").is_not(None) for name in names))
    found = zip(names, connection.execute(there).one(), strict=True)
    if missing := [name for name, is_there in found if not is_there]:
        raise TablesMissing(database_of(connection.engine.url), missing)


def _pending_of(connection: Connection, branch: Branch) -> list[Step]:
    scripts = branch.scripts()
    heads = _heads_of(connection, branch)
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
    with _followed(branch), explained(engine.url):
        yield


@contextmanager
def _followed(branch: Branch) -> Iterator[None]:
    """Raise a sentence where the way through the branch ends before its end."""
    try:
        yield
    except (CommandError, RevisionError) as error:
        raise MigrationUnknown(
            f"the migrations of {branch.name!r} cannot be followed ({str(error).rstrip('.')}): "
            "install the version of the code that has this revision, or name one that is there"
        ) from error
    except Exception as error:
        if sqlstate_of(error) == _LOCK_NOT_AVAILABLE:
            raise MigrationBlocked(
                f"the migration of {branch.name!r} gave up waiting for another session's lock and changed "
                "nothing: run it again when that long transaction or other migration is over"
            ) from error
        if failure := _failure(branch, error):
            raise failure from error
        raise


def _failure(branch: Branch, error: Exception) -> MigrationFailed | None:
    """Say where a context's migration failed; what fails in the outbox's own is a defect, or told already."""
    # These two name a remedy for the outbox's tables, which is none for the context's.
    misled = isinstance(error, NameTaken | SchemaNotMigrated)
    if branch.name == OUTBOX_BRANCH or (isinstance(error, KernelError) and not misled):
        return None
    cause = error.__cause__ if misled and error.__cause__ else error
    place = branch.place_of(cause)
    if place is None:
        return None
    return MigrationFailed(
        f"the migration of {branch.name!r} failed and changed nothing "
        f"({type(cause).__name__}: {told(cause)}, {place}): mend that file and run it again"
    )
