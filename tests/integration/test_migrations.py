"""Migrations are product: declared = replayed, up and down, from two machines at once (O1)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pty
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from subprocess import PIPE, Popen

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.errors import (
    BadContext,
    MigrationBlocked,
    MigrationFailed,
    MigrationUnknown,
    ServerTooOld,
    TablesMissing,
)
from outbox_kernel.infrastructure.outbox import branches, migrator
from outbox_kernel.infrastructure.outbox.migrator import (
    Loss,
    Step,
    downgrade,
    loss,
    migrate,
    migration_sql,
    pending,
)
from outbox_kernel.infrastructure.outbox.relay_tables import outbox_metadata_in
from outbox_kernel.infrastructure.outbox.tables import (
    AGGREGATE_STREAM_KEY,
    EVENT_ID_KEY,
    QUEUES_STREAM_KEY,
    outbox_metadata,
)
from outbox_kernel.infrastructure.settings import Settings
from tests import servers
from tests.a_second_migration import with_a_second
from tests.commands import COMMAND, ROOT, SECONDS_MAX, environment_with, failed_in_one_sentence, outbox

OUTBOX_ONLY = Settings(contexts=())
FIRST = Step(
    "outbox",
    "outbox_0001",
    "The outbox: its events, who reads them and where each stands, and what did not succeed at once.",
)
ALL = [FIRST]
SECOND = Step("outbox", "outbox_0002", "The second.")
# The outbox's and those of every context here.
OF_THE_CHECKOUT = list((Path(__file__).parents[2] / "migrations").glob("*/*.py"))

INDEX = "outbox_events_xid_position_idx"
CAUSES = "outbox_events_causation_idx"

# Everything that makes two schemas the same to a reader or a writer, in one list of texts.
CATALOG = """
SELECT format('%s.%s #%s %s %s identity %s default %s -- %s', c.relname, a.attname,
              row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum),
              format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'not null' END,
              a.attidentity, pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum))
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = to_regnamespace($1) AND c.relname NOT LIKE '%alembic%'
UNION ALL
SELECT format('%s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint
WHERE connamespace = to_regnamespace($1) AND conname NOT LIKE '%alembic%'
UNION ALL
SELECT indexdef FROM pg_indexes WHERE schemaname = $1 AND tablename NOT LIKE '%alembic%'
UNION ALL
SELECT format('%s %s', viewname, definition) FROM pg_views WHERE schemaname = $1
UNION ALL
SELECT format('%s %s -- %s', relkind, relname, obj_description(oid, 'pg_class')) FROM pg_class
WHERE relnamespace = to_regnamespace($1) AND relname NOT LIKE '%alembic%'
ORDER BY 1
"""


@pytest.fixture
async def engine(empty_postgres_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(empty_postgres_url)
    yield engine
    await engine.dispose()


async def catalog(engine: AsyncEngine, schema: str = "public") -> list[str]:
    async with engine.connect() as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        assert raw is not None
        rows = await raw.fetch(CATALOG, schema)
    return [re.sub(rf"\b{schema}\.", "", row[0]) for row in rows]


async def execute(engine: AsyncEngine, statement: str) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(statement))


async def scalar(engine: AsyncEngine, statement: str) -> object:
    async with engine.connect() as connection:
        return (await connection.execute(text(statement))).scalar()


@pytest.mark.servers
async def test_the_declared_tables_are_the_replayed_migrations(engine: AsyncEngine) -> None:
    await migrate(engine, OUTBOX_ONLY)

    def differences(connection: Connection) -> list[object]:
        options = {
            "compare_server_default": True,
            "include_object": lambda _, name, kind, *__: (kind, name) != ("table", "outbox_alembic_version"),
        }
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), outbox_metadata))

    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []


@pytest.mark.servers
async def test_created_and_migrated_schemas_are_the_same_to_the_catalog(engine: AsyncEngine) -> None:
    await execute(engine, "CREATE SCHEMA declared")
    async with engine.begin() as connection:
        await connection.run_sync(outbox_metadata_in("declared").create_all)
    await migrate(engine, Settings(contexts=(), outbox_schema="migrated"))

    declared = await catalog(engine, "declared")
    assert declared == await catalog(engine, "migrated")
    assert any(f"INDEX {INDEX}" in line for line in declared)
    assert any("AS delivered_at" in line for line in declared)


async def test_dropping_the_declared_tables_leaves_nothing(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.run_sync(outbox_metadata.create_all)
        await connection.run_sync(outbox_metadata.drop_all)
    assert await catalog(engine) == []


@pytest.mark.servers
async def test_up_and_down_and_up_again(engine: AsyncEngine) -> None:
    assert await pending(engine, OUTBOX_ONLY) == ALL
    assert await migrate(engine, OUTBOX_ONLY) == ALL
    there = await catalog(engine)
    assert await migrate(engine, OUTBOX_ONLY) == []
    assert await pending(engine, OUTBOX_ONLY) == []

    assert await downgrade(engine, "outbox@base", OUTBOX_ONLY) == ALL
    assert await catalog(engine) == []

    assert await migrate(engine, OUTBOX_ONLY) == ALL
    assert await catalog(engine) == there
    assert await downgrade(engine, "outbox@-1", OUTBOX_ONLY) == [ALL[-1]]


@pytest.fixture
def later_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outbox's migrations as a later version may have them: with one more, that adds a table."""
    monkeypatch.setattr(branches, "_outbox_folder", lambda: with_a_second(tmp_path / "later"))


async def test_an_outbox_from_before_becomes_what_a_new_one_is_and_can_go_back(
    engine: AsyncEngine, request: pytest.FixtureRequest
) -> None:
    """Law 7, with events in it."""
    await migrate(engine, OUTBOX_ONLY)
    before = await catalog(engine)
    await execute(engine, INSERT.format(id=SOME_ID, aggregate=SOME_ID))
    await execute(engine, SUBSCRIBE)
    request.getfixturevalue("later_code")

    assert await pending(engine, OUTBOX_ONLY) == [SECOND]
    assert await migrate(engine, OUTBOX_ONLY) == [SECOND]
    assert await scalar(engine, "SELECT to_regclass('outbox_more')::text") == "outbox_more"

    # The events stay, so none is told as lost.
    assert await loss(engine, "outbox@-1", OUTBOX_ONLY) == Loss([SECOND], None)
    assert await loss(engine, "outbox@base", OUTBOX_ONLY) == Loss([SECOND, FIRST], 1)
    assert await downgrade(engine, "outbox@outbox_0001", OUTBOX_ONLY) == [SECOND]
    assert await catalog(engine) == before
    assert await scalar(engine, "SELECT count(*) FROM outbox_events") == 1


@pytest.mark.usefixtures("later_code")
async def test_several_go_up_and_down_in_their_order(engine: AsyncEngine) -> None:
    assert await migrate(engine, OUTBOX_ONLY) == [FIRST, SECOND]
    assert await downgrade(engine, "outbox@base", OUTBOX_ONLY) == [SECOND, FIRST]
    assert await catalog(engine) == []


async def test_a_database_that_later_code_has_migrated_is_told_from_an_older_one(
    engine: AsyncEngine, later_code: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(engine, OUTBOX_ONLY)
    monkeypatch.undo()
    for attempt in (migrate, pending):
        with pytest.raises(MigrationUnknown, match=r"outbox_0002.*install the version of the code"):
            await attempt(engine, OUTBOX_ONLY)


async def test_asking_what_is_pending_changes_nothing(engine: AsyncEngine) -> None:
    await pending(engine, OUTBOX_ONLY)
    assert (
        await scalar(engine, "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace") == 0
    )


@pytest.mark.parametrize("schema", [None, "events"])
async def test_the_script_makes_the_same_schema(
    engine: AsyncEngine, empty_postgres_url: str, schema: str
) -> None:
    settings = Settings(contexts=(), outbox_schema=schema)
    connection = await asyncpg.connect(empty_postgres_url)
    await connection.execute(migration_sql(settings))
    await connection.close()
    by_script = await catalog(engine, schema or "public")

    assert await pending(engine, settings) == []
    await downgrade(engine, "outbox@base", settings)
    await migrate(engine, settings)
    assert await catalog(engine, schema or "public") == by_script


async def test_a_schema_of_ones_own_holds_everything(engine: AsyncEngine) -> None:
    await migrate(engine, Settings(contexts=(), outbox_schema="events"))
    assert (
        await scalar(engine, "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace") == 0
    )
    assert await scalar(engine, "SELECT count(*) FROM events.outbox_alembic_version") == 1
    assert await scalar(engine, "SELECT count(*) FROM events.outbox") == 0


async def test_two_outboxes_live_in_one_database(engine: AsyncEngine) -> None:
    for schema in ("one", "two"):
        assert await migrate(engine, Settings(contexts=(), outbox_schema=schema)) == ALL
    assert await catalog(engine, "one") == await catalog(engine, "two") != []


async def test_a_schema_made_for_us_needs_no_right_to_create_schemas(engine: AsyncEngine) -> None:
    role = f"outbox_tenant_{id(engine)}"
    await execute(engine, f"CREATE ROLE {role}")
    try:
        await execute(engine, f"CREATE SCHEMA events AUTHORIZATION {role}")
        tenant = create_engine(engine.url, connect_args={"server_settings": {"role": role}})
        assert await migrate(tenant, Settings(contexts=(), outbox_schema="events")) == ALL
        await tenant.dispose()
    finally:
        await execute(engine, f"DROP OWNED BY {role}")
        await execute(engine, f"DROP ROLE {role}")


async def test_an_applications_own_alembic_table_is_not_touched(engine: AsyncEngine) -> None:
    await execute(engine, "CREATE TABLE alembic_version AS SELECT 'theirs' AS version_num")
    await migrate(engine, OUTBOX_ONLY)
    assert await scalar(engine, "SELECT version_num FROM alembic_version") == "theirs"


async def test_many_that_migrate_at_once_in_one_process_all_succeed(engine: AsyncEngine) -> None:
    ran = await asyncio.gather(*(migrate(engine, OUTBOX_ONLY) for _ in range(5)))
    assert sorted(ran) == [[], [], [], [], ALL]


@pytest.mark.servers
def test_machines_that_migrate_at_once_all_succeed(empty_postgres_url: str) -> None:
    environment = environment_with(DATABASE_URL=empty_postgres_url)
    machines = [
        Popen((*COMMAND, "migrate"), cwd=ROOT, env=environment, stdout=PIPE, stderr=PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [machine.communicate(timeout=60) for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0, 0], outputs
    assert sum("outbox_0001" in out for out, _ in outputs) == 1


async def test_a_table_held_by_somebody_stops_it_in_time_with_a_sentence(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrator, "TABLE_LOCK_SECONDS_MAX", 0.05)
    await migrate(engine, OUTBOX_ONLY)
    before = await catalog(engine)
    async with engine.begin() as reader:
        await reader.execute(text("SELECT count(*) FROM outbox_events"))
        with pytest.raises(MigrationBlocked, match=r"gave up waiting .* changed nothing: run it again"):
            await downgrade(engine, "outbox@base", OUTBOX_ONLY)
    assert await catalog(engine) == before


async def test_another_migration_that_does_not_end_stops_it_in_time(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrator, "TURN_SECONDS_MAX", 0.05)
    async with engine.begin() as other:
        await other.execute(text(f"SELECT pg_advisory_xact_lock({migrator.ADVISORY_LOCK})"))
        with pytest.raises(MigrationBlocked):
            await migrate(engine, OUTBOX_ONLY)


@pytest.mark.parametrize("target", ["base", "outbox", "nobody@base", "outbox@nowhere", "outbox@-9"])
async def test_a_way_down_that_is_none_is_a_sentence(engine: AsyncEngine, target: str) -> None:
    await migrate(engine, OUTBOX_ONLY)
    with pytest.raises(MigrationUnknown):
        await downgrade(engine, target, OUTBOX_ONLY)


async def test_a_server_that_is_too_old_is_refused_before_anything_is_made(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrator, "POSTGRES_VERSION_MIN", 99)
    with pytest.raises(
        ServerTooOld, match=r"the server is PostgreSQL \d+; the oldest supported is 99: upgrade it"
    ):
        await migrate(engine, OUTBOX_ONLY)
    assert await catalog(engine) == []


# --- what is missing, and what a way down takes along (O1) ----------------------------------------------


@pytest.mark.parametrize(
    ("dropped", "names"),
    [
        (
            "TABLE outbox_events CASCADE",
            (
                *("outbox_events", "outbox_log", "outbox_status", "outbox"),
                *(AGGREGATE_STREAM_KEY, CAUSES, QUEUES_STREAM_KEY, INDEX),
            ),
        ),
        ("VIEW outbox", ("outbox",)),
        ("VIEW outbox_status", ("outbox_status",)),
        (f"INDEX {INDEX}", (INDEX,)),
    ],
)
@pytest.mark.parametrize("schema", [None, "events"])
async def test_what_was_dropped_behind_the_version_tables_back_is_missed(
    engine: AsyncEngine, dropped: str, names: tuple[str, ...], schema: str | None
) -> None:
    settings = Settings(contexts=(), outbox_schema=schema)
    await migrate(engine, settings)
    kind, rest = dropped.split(" ", 1)
    await execute(engine, f"DROP {kind} {schema or 'public'}.{rest}")
    for attempt in (migrate(engine, settings), loss(engine, "outbox@base", settings)):
        with pytest.raises(
            TablesMissing, match=f"marked as migrated, .*: {', '.join(names)}; restore"
        ) as raised:
            await attempt
        assert raised.value.names == names


async def test_what_is_missing_is_made_by_its_statement_of_the_script(engine: AsyncEngine) -> None:
    await migrate(engine, OUTBOX_ONLY)
    await execute(engine, "DROP TABLE outbox_events CASCADE")
    for statement in migration_sql(OUTBOX_ONLY).split(";"):
        if re.search(r"CREATE (TABLE|(UNIQUE )?INDEX|VIEW) outbox(_events\w*|_log|_status)?\b", statement):
            await execute(engine, statement)
    assert await migrate(engine, OUTBOX_ONLY) == []


async def test_a_way_down_says_what_it_takes_along_and_changes_nothing(
    engine: AsyncEngine, application: Path
) -> None:
    settings = settings_of(application, "shop")
    assert await loss(engine, "outbox@base", settings) == Loss([], None)
    await migrate(engine, settings)
    for statement in (INSERT.format(id=SOME_ID, aggregate=SOME_ID), SUBSCRIBE):
        await execute(engine, statement.replace("INTO outbox", "INTO events.outbox"))
    before = await catalog(engine, "events")
    assert await loss(engine, "outbox@base", settings) == Loss(ALL, 1)
    assert await loss(engine, "shop@-1", settings) == Loss([Step("shop", "shop_0001", "The first.")], None)
    assert await catalog(engine, "events") == before


async def some_events(url: str) -> None:
    engine = create_engine(url)
    await migrate(engine, OUTBOX_ONLY)
    await execute(engine, SUBSCRIBE)
    for event_type in ("Noted", "Happened", "Happened"):
        statement = INSERT.format(id="gen_random_uuid()", aggregate="gen_random_uuid()")
        await execute(engine, statement.replace("Happened", event_type))
    await engine.dispose()


DOWN = ("migrate", "--down", "outbox@base")
LOSS = "to undo outbox_0001 drops its tables with their data, among it 2 events that are not delivered"


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_where_nobody_can_be_asked_a_way_down_wants_a_yes(
    empty_postgres_url: str, form: tuple[str, ...]
) -> None:
    servers.run(some_events(empty_postgres_url))
    refused = outbox(*DOWN, *form, DATABASE_URL=empty_postgres_url)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"{LOSS}, and nothing brings that back: say --yes if that is meant" in refused.stderr
    if form:
        assert json.loads(refused.stderr)["kind"] == "NotConfirmed"
    done = outbox(*DOWN, *form, "--yes", DATABASE_URL=empty_postgres_url)
    assert done.returncode == 0
    if form:
        assert json.loads(done.stdout)["undelivered_lost"] == 2
    assert outbox(*DOWN, DATABASE_URL=empty_postgres_url).stdout.startswith("nothing to do")


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_at_a_terminal_a_way_down_is_asked_about(empty_postgres_url: str, answer: str, code: int) -> None:
    servers.run(some_events(empty_postgres_url))
    ours, theirs = pty.openpty()
    environment = environment_with(DATABASE_URL=empty_postgres_url)
    asked = Popen(
        (*COMMAND, *DOWN), cwd=ROOT, env=environment, stdin=theirs, stdout=PIPE, stderr=PIPE, text=True
    )
    os.write(ours, f"{answer}\n".encode())
    out, err = asked.communicate(timeout=SECONDS_MAX)
    for end in (ours, theirs):
        os.close(end)
    assert asked.returncode == code
    assert f"{LOSS}, and nothing brings that back. Go on?" in err
    assert ("1 migration undone" in out) is (code == 0)
    assert ("error: nothing was undone, since you did not say yes" in err) is (code == 1)


def without_database(url: str, **query: str) -> str:
    return make_url(url).set(database="").update_query_dict(query).render_as_string(hide_password=False)


def without_a_last_slash(url: str) -> str:
    return url.replace("/?", "?").removesuffix("/")


@pytest.mark.parametrize(
    ("written", "query"),
    [(str, {}), (without_a_last_slash, {}), (str, {"dbname": "outbox_nowhere"})],
)
def test_a_url_without_a_database_is_refused(
    empty_postgres_url: str, written: Callable[[str], str], query: dict[str, str]
) -> None:
    url = written(without_database(empty_postgres_url, **query))
    sentence = failed_in_one_sentence(outbox("migrate", DATABASE_URL=url))
    assert sentence.startswith("DATABASE_URL names no database: write postgresql://")


def test_a_missing_database_that_is_named_as_libpq_allows_is_told_by_that_name(
    empty_postgres_url: str,
) -> None:
    url = without_a_last_slash(without_database(empty_postgres_url, dbname="outbox_nowhere"))
    sentence = failed_in_one_sentence(outbox("migrate", DATABASE_URL=url))
    assert 'has no database "outbox_nowhere": create it (`createdb outbox_nowhere`)' in sentence


async def test_a_database_named_as_libpq_allows_is_the_one_that_is_migrated(
    engine: AsyncEngine, empty_postgres_url: str
) -> None:
    name = str(engine.url.database)
    for url, variable in (
        (without_a_last_slash(without_database(empty_postgres_url, dbname=name)), "elsewhere"),
        (without_a_last_slash(without_database(empty_postgres_url)), name),
    ):
        # Named nowhere else but here: a server's own database is nobody's to try things in.
        done = outbox("migrate", DATABASE_URL=url, PGDATABASE=variable)
        assert done.stdout.splitlines()[-1] == f"{len(OF_THE_CHECKOUT)} migrations applied", done.stderr
        assert await scalar(engine, "SELECT count(*) FROM outbox") == 0
        await execute(engine, "DROP SCHEMA public CASCADE")
        await execute(engine, "CREATE SCHEMA public")


# --- what the table promises --------------------------------------------------------------------------


INSERT = """
INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id,
                           aggregate_version, payload, occurred_at)
VALUES ({id}, 'Happened', 1, 'account', {aggregate}, 1, '{{}}', now())
"""
# Due for what happened, and has passed nothing.
SUBSCRIBE = """
INSERT INTO outbox_subscriptions (name, kind, patterns) VALUES ('h', 'handler', ARRAY['Happened'])
"""
SOME_ID = "'00000000-0000-7000-8000-000000000001'"


@pytest.mark.parametrize(
    ("constraint", "second"),
    [
        (EVENT_ID_KEY, {"id": SOME_ID, "aggregate": "gen_random_uuid()"}),
        (AGGREGATE_STREAM_KEY, {"id": "gen_random_uuid()", "aggregate": SOME_ID}),
    ],
)
async def test_each_rule_is_known_by_its_name(
    engine: AsyncEngine, constraint: str, second: dict[str, str]
) -> None:
    await migrate(engine, OUTBOX_ONLY)
    await execute(engine, INSERT.format(id=SOME_ID, aggregate=SOME_ID))
    with pytest.raises(IntegrityError, match=constraint):
        await execute(engine, INSERT.format(**second))


# --- the contexts' branches ----------------------------------------------------------------------------


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An application with one context that has one migration; its name is new to Python."""
    home = tmp_path / f"application_{tmp_path.name}"
    for folder in (home / "contexts" / "shop", home / "migrations" / "shop"):
        folder.mkdir(parents=True)
    for package in (home, home / "contexts", home / "contexts" / "shop"):
        (package / "__init__.py").touch()
    write_revision(home, "shop", "op.execute('CREATE TABLE shops (id uuid PRIMARY KEY)')")
    monkeypatch.syspath_prepend(tmp_path)
    return home


def write_revision(home: Path, context: str, upgrade: str) -> None:
    (home / "migrations" / context / "0001_first.py").write_text(
        f'"""The first."""\nfrom alembic import op\nrevision, down_revision = "{context}_0001", None\n'
        f"def upgrade():\n    {upgrade}\ndef downgrade():\n    op.execute('DROP TABLE shops')\n"
    )


def settings_of(home: Path, *contexts: str) -> Settings:
    return Settings(
        outbox_schema="events", contexts=tuple(f"{home.name}.contexts.{name}" for name in contexts)
    )


async def test_each_context_migrates_in_a_branch_of_its_own(engine: AsyncEngine, application: Path) -> None:
    settings = settings_of(application, "shop")
    assert await migrate(engine, settings) == [*ALL, Step("shop", "shop_0001", "The first.")]
    assert await scalar(engine, "SELECT version_num FROM public.shop_alembic_version") == "shop_0001"
    assert await scalar(engine, "SELECT to_regclass('public.shops')::text") == "shops"
    assert await downgrade(engine, "shop@base", settings) == [Step("shop", "shop_0001", "The first.")]
    assert await pending(engine, settings) == [Step("shop", "shop_0001", "The first.")]


async def test_a_machine_without_the_context_migrates_all_the_same(
    engine: AsyncEngine, application: Path
) -> None:
    await migrate(engine, settings_of(application, "shop"))
    assert await migrate(engine, settings_of(application)) == []


async def test_a_migration_that_fails_leaves_nothing_of_itself(
    engine: AsyncEngine, application: Path
) -> None:
    write_revision(application, "shop", "op.execute('CREATE TABLE shops (id uuid)'); 1 / 0")
    with pytest.raises(MigrationFailed, match="ZeroDivisionError"):
        await migrate(engine, settings_of(application, "shop"))
    assert await scalar(engine, "SELECT to_regclass('public.shops')") is None
    assert await pending(engine, settings_of(application, "shop")) == [
        Step("shop", "shop_0001", "The first.")
    ]


async def test_a_commit_that_fails_is_no_line_of_a_file_and_comes_out_as_the_database_said_it(
    engine: AsyncEngine, application: Path
) -> None:
    rule = "UNIQUE DEFERRABLE INITIALLY DEFERRED"
    write_revision(
        application,
        "shop",
        f"op.execute('CREATE TABLE shops (id int {rule})'); op.execute('INSERT INTO shops VALUES (1), (1)')",
    )
    with pytest.raises(IntegrityError, match="shops_id_key"):
        await migrate(engine, settings_of(application, "shop"))
    assert await scalar(engine, "SELECT to_regclass('public.shops')") is None


async def test_where_everything_is_logged_alembic_does_not_say_that_it_is_there(
    engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """O1: which migration runs is worth a line, and how Alembic is set up is not."""
    # By its own name, too: whoever sets up logs in this process may have made it quieter.
    with caplog.at_level(logging.INFO), caplog.at_level(logging.INFO, "alembic"):
        assert await migrate(engine, OUTBOX_ONLY) == ALL
    said = [record.getMessage() for record in caplog.records if record.name.startswith("alembic")]
    assert [line for line in said if "Context impl" in line or "transactional DDL" in line] == []
    assert len(said) == len(ALL)


def test_a_context_named_like_another_branch_is_refused(application: Path) -> None:
    for folder in (application / "contexts" / "outbox", application / "migrations" / "outbox"):
        folder.mkdir()
    (application / "contexts" / "outbox" / "__init__.py").touch()
    with pytest.raises(BadContext, match="'outbox' is the name of another branch: rename it"):
        migration_sql(settings_of(application, "outbox"))


def test_the_command_finds_the_contexts_of_its_folder(application: Path, empty_postgres_url: str) -> None:
    result = outbox("migrate", folder=application, DATABASE_URL=empty_postgres_url)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        *(f"outbox\t{step.revision}\t{step.summary}" for step in ALL),
        "shop\tshop_0001\tThe first.",
        f"{len(ALL) + 1} migrations applied",
    ]
    again = outbox("migrate", "--json", folder=application, DATABASE_URL=empty_postgres_url)
    assert json.loads(again.stdout) == {"applied": [], "ignored": []}
    down = outbox(
        "migrate", "--down", "shop@base", "--yes", folder=application, DATABASE_URL=empty_postgres_url
    )
    assert down.stdout.splitlines()[-1] == "1 migration undone"
