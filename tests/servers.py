"""Finding a PostgreSQL for the tests: the environment's, else Docker's, else the embedded one.

`OUTBOX_TEST_SERVER=environment|docker|embedded` asks for one of them. A server that was asked for, or named
by a URL, must answer: its absence ends the run. One that was merely looked for may be missing, unless
`OUTBOX_REQUIRE_SERVICES=1`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
from attrs import field, frozen

from outbox_kernel.infrastructure.errors import EmbeddedServerFailed, MissingExtra
from outbox_kernel.infrastructure.postgres.embedded import EmbeddedPostgres

T = TypeVar("T")

KINDS = ("environment", "docker", "embedded")
CONNECT_SECONDS_MAX = 10.0
# The newest supported, like the embedded one; a machine that has another image names it.
DOCKER_IMAGE = "postgres:18"


CUT_OFF = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
EMPTY = """
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema$)' LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', name);
  END LOOP;
END $$;
CREATE SCHEMA public AUTHORIZATION pg_database_owner;
GRANT USAGE ON SCHEMA public TO PUBLIC;
"""
AS_NEW = """
SELECT datacl IS NULL AND datconnlimit = -1 AND datallowconn
   AND NOT EXISTS (SELECT FROM pg_db_role_setting WHERE setdatabase = pg_database.oid)
   AND NOT EXISTS (SELECT FROM pg_default_acl) AND NOT EXISTS (SELECT FROM pg_largeobject_metadata)
   AND NOT EXISTS (SELECT FROM pg_event_trigger) AND (SELECT count(*) = 1 FROM pg_extension)
FROM pg_database WHERE datname = current_database()
"""


class NoServerError(Exception):
    """No server of the wanted kind: a sentence that says why, and what to do."""


@frozen
class Server:
    """A running server, by the URL of a database from which others can be created."""

    kind: str
    url: str
    version: str
    spare: list[str] = field(factory=list, eq=False, repr=False)
    """Databases that a test has used and left as new."""

    def __str__(self) -> str:
        return f"PostgreSQL {self.version} ({self.kind})"


def candidates(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The kinds to try, best first. More than one only if none was asked for."""
    wanted = environ.get("OUTBOX_TEST_SERVER")
    if wanted and wanted not in KINDS:
        raise NoServerError(f"OUTBOX_TEST_SERVER is {wanted!r}; it may be {', '.join(KINDS)}")
    if wanted:
        return [wanted]
    if environment_url(environ):
        return ["environment"]
    found = ["docker", "embedded"] if docker_answers(environ) else ["embedded"]
    return found[:1] if required(environ) else found


def required(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a missing server fails the run even if nobody asked for that kind by name."""
    return environ.get("OUTBOX_REQUIRE_SERVICES", "") not in ("", "0")


def require(missing: str | None) -> None:
    """Leave the test out where the machine lacks what it needs; fail it where all must be there."""
    if missing is not None:
        (pytest.fail if required() else pytest.skip)(missing)


def asked_for(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether somebody named the server that must be there."""
    return bool(environ.get("OUTBOX_TEST_SERVER") or environment_url(environ))


def environment_url(environ: Mapping[str, str] = os.environ) -> str | None:
    """The server's URL as asyncpg reads it, whatever driver the variable names for SQLAlchemy."""
    url = environ.get("OUTBOX_TEST_DATABASE_URL") or environ.get("DATABASE_URL")
    if not url:
        return None
    scheme, _, rest = url.partition("://")
    return f"postgresql://{rest}" if scheme.startswith("postgres") else None


def docker_answers(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a Docker daemon listens. Docker's own client would leak a socket where none does."""
    address = urlsplit(environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock")
    with ExitStack() as stack:
        try:
            if address.scheme == "unix":
                stack.enter_context(socket.socket(socket.AF_UNIX)).connect(address.path)
            else:
                port = address.port or 2375
                stack.enter_context(socket.create_connection((address.hostname, port), CONNECT_SECONDS_MAX))
        except OSError:
            return False
    return True


@contextmanager
def running_server(environ: Mapping[str, str] = os.environ) -> Iterator[Server]:
    """The first of the candidates that starts, for as long as the context lasts."""
    start = {"environment": _from_environment, "docker": _in_docker, "embedded": _embedded}
    reasons: list[str] = []
    with ExitStack() as stack:
        for kind in candidates(environ):
            try:
                url = stack.enter_context(start[kind](environ))
                server = Server(kind, url, run(_version(url)))
                break
            except NoServerError as error:
                reasons.append(str(error))
        else:
            raise NoServerError("; ".join(reasons))
        yield server
        if kind == "environment":  # the others go with all they hold
            for name in server.spare:
                run(_drop(server, name))


@contextmanager
def fresh_database(server: Server) -> Iterator[str]:
    """The URL of an empty database; whoever is still connected afterwards is cut off."""
    name = server.spare.pop() if server.spare else run(_create(server))
    url = urlsplit(server.url)._replace(path=f"/{name}").geturl()
    try:
        yield url
    finally:
        # To drop one is a checkpoint of the whole server, and takes ten times as long as to empty it.
        if run(_emptied(url)):
            server.spare.append(name)
        else:
            run(_drop(server, name))


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it on a loop of its own and leave the thread's current loop alone, unlike `asyncio.run`."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(coroutine)


@contextmanager
def _from_environment(environ: Mapping[str, str]) -> Iterator[str]:
    url = environment_url(environ)
    if url is None:
        raise NoServerError(
            "set OUTBOX_TEST_DATABASE_URL to a postgresql:// URL whose user may create databases"
        )
    yield url


@contextmanager
def _in_docker(environ: Mapping[str, str]) -> Iterator[str]:
    from docker.errors import DockerException
    from testcontainers.community.postgres import PostgresContainer

    if not docker_answers(environ):
        raise NoServerError("no Docker daemon answers; start it, or say where it is with DOCKER_HOST")
    image = environ.get("TC_PG_IMAGE", DOCKER_IMAGE)
    # Nothing in it outlives the run, so nothing needs to reach the disk.
    container = PostgresContainer(image, driver=None).with_command("postgres -c fsync=off")
    try:
        container.start()
    except (DockerException, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise NoServerError(f"Docker cannot start {image} (TC_PG_IMAGE names another): {reason}") from error
    try:
        yield container.get_connection_url()
    finally:
        container.stop()


@contextmanager
def _embedded(environ: Mapping[str, str]) -> Iterator[str]:
    del environ  # it needs nothing from outside
    try:
        with EmbeddedPostgres() as server:
            yield server.url
    except (MissingExtra, EmbeddedServerFailed) as error:
        raise NoServerError(f"{error}; or start PostgreSQL or Docker") from error


async def _create(server: Server) -> str:
    name = f"outbox_test_{uuid4().hex}"
    # The same encoding and sort order on every server, whatever its own templates say.
    await _execute(server.url, f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
    return name


async def _drop(server: Server, name: str) -> None:
    await _execute(server.url, f"DROP DATABASE {name} WITH (FORCE)")


async def _emptied(url: str) -> bool:
    """Empty a database; False where more than its schemas was changed, or it lets nobody in to do so."""
    try:
        await _execute(url, CUT_OFF, EMPTY)
        return bool(await _value(url, AS_NEW))
    except asyncpg.PostgresError:
        return False


async def _execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS_MAX)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def _value(url: str, query: str) -> object:
    connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS_MAX)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def _version(url: str) -> str:
    """The server's version; it must be reachable and let us create databases."""
    address = urlsplit(url).hostname or "its socket"
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS_MAX)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise NoServerError(f"PostgreSQL at {address} does not let us in: {error}") from error
    try:
        allowed = await connection.fetchval(
            "SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user"
        )
        if not allowed:
            raise NoServerError(
                f"PostgreSQL at {address}: the tests' user may not create databases (CREATEDB)"
            )
        version: str = await connection.fetchval("SHOW server_version")
        return version.split(maxsplit=1)[0]
    finally:
        await connection.close()
