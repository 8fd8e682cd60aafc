"""Turn what a driver raised into one sentence with a remedy.

Pure and cheap, so that every commit may call it. Give it only what a database call raised: an
`OSError` of the application's own would be taken for the database's.
"""

from __future__ import annotations

import re
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

from asyncpg.exceptions import ClientConfigurationError
from sqlalchemy.engine import URL, make_url

from outbox_kernel.infrastructure.errors import (
    BadSetting,
    DatabaseMissing,
    DatabaseUnreachable,
    InfrastructureError,
    LoginRefused,
    NameTaken,
    PermissionDenied,
    SchemaNotMigrated,
    ServerFull,
)
from outbox_kernel.infrastructure.postgres.asyncpg_inside import is_loss
from outbox_kernel.infrastructure.postgres.limits import CHAIN_ERRORS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OUTBOX_NAME = re.compile(r'"((?P<schema>\w+)\.)?outbox(_\w+)?"')

_OF_LOSING = re.compile("connection is (bad|closed)|server closed the connection")
_OF_CONNECTING = re.compile(
    "connection (failed|is (bad|closed)|timeout)|resolve host|server closed the connection"
)


def explain(error: BaseException, url: str | URL) -> InfrastructureError | None:
    """Give the error that says it in a sentence, or nothing when the failure is none that has one."""
    for cause in causes_of(error):
        found = cause if isinstance(cause, InfrastructureError) else _explain_one(cause, make_url(url))
        if found is not None:
            return found
    return None


@contextmanager
def explained(url: str | URL) -> Iterator[None]:
    """Raise the sentence in place of the driver's error, which stays its cause."""
    try:
        yield
    except Exception as error:
        refusal = explain(error, url)
        if refusal is None or refusal is error:
            raise
        raise refusal from error


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Give an error and what it was raised for, through whatever wraps it."""
    cause: BaseException | None = error
    for _ in range(CHAIN_ERRORS_MAX):
        if cause is None:
            return
        yield cause
        cause = getattr(cause, "orig", None) or cause.__cause__


def sqlstate_of(error: BaseException) -> str | None:
    """Find the SQLSTATE that PostgreSQL gave, through whatever wraps it."""
    states = (getattr(cause, "sqlstate", None) for cause in causes_of(error))
    return next((state for state in states if isinstance(state, str)), None)


def address_of(url: str | URL) -> str:
    """Name the server for a person: host and port, or the socket's folder."""
    parsed = make_url(url)
    if parsed.host:
        return f"{parsed.host}:{parsed.port or 5432}"
    hosts = parsed.query.get("host") or "the local socket"
    if isinstance(hosts, str) and "," not in hosts:
        return hosts
    ports = parsed.query.get("port")
    if isinstance(hosts, str) and isinstance(ports, str):
        return " or ".join(map(":".join, zip(hosts.split(","), ports.split(","), strict=False)))
    return " or ".join(hosts.split(",") if isinstance(hosts, str) else hosts)


def database_of(url: URL) -> str:
    """Name the database for a person, also one that the URL leaves to the server."""
    return f'database "{url.database}"' if url.database else "the default database (DATABASE_URL names none)"


def outbox_remedy(schema: str | None) -> str:
    """Say what to do where the outbox's tables are not found."""
    # The tables may well be there, in the schema of another setting.
    if schema:
        return f"run `outbox migrate`, or correct OUTBOX_SCHEMA if its tables are not to be in {schema}"
    # A schema of the search path that may not be used is passed over without a word.
    elsewhere = "in a schema off the search path, or without USAGE for this user"
    return f"run `outbox migrate`, or set OUTBOX_SCHEMA if its tables are {elsewhere}"


def _explain_one(error: BaseException, url: URL) -> InfrastructureError | None:
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        tell = _BY_STATE.get(state) or _BY_CLASS.get(state[:2])
        return tell(_first_line(error), url) if tell else None
    if isinstance(error, ClientConfigurationError):
        return _bad_url(_first_line(error), url)
    if is_loss(error):
        return lost("it was closed", url)
    if type(error).__module__.startswith("psycopg") and _OF_CONNECTING.search(str(error)):
        return _by_libpq(_first_line(error).rpartition("failed: ")[2], url)
    if isinstance(error, OSError):  # TimeoutError is one, and so is a failed name look-up
        return _unreachable(_network_reason(error), url)
    return None


def _by_libpq(reason: str, url: URL) -> InfrastructureError:
    # Of what happens before the login libpq tells no SQLSTATE, only the server's own words.
    told = reason.removeprefix("FATAL:").strip()
    if re.search('database ".*" does not exist', told):
        return _missing(told, url)
    if told != reason and re.search('authentication failed|pg_hba|role ".*" does not exist', told):
        return _login_refused(told, url)
    tell = lost if _OF_LOSING.search(told) else _unreachable
    return tell(told[:1].lower() + told[1:], url)


def _network_reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "the host name is unknown"
    if isinstance(error, FileNotFoundError):
        return "there is no socket"
    return error.strerror or str(error) or type(error).__name__


def lost(reason: str, url: str | URL) -> InfrastructureError:
    """Say that a connection which was there is no more; whether the server is, the next one finds out."""
    return DatabaseUnreachable(
        f"a connection to PostgreSQL at {address_of(url)} was lost ({reason}): if that goes on, look at the server's "
        "log, and at what stands between"
    )


def _unreachable(reason: str, url: URL) -> InfrastructureError:
    return DatabaseUnreachable(
        f"no PostgreSQL answers at {address_of(url)} ({reason}): start the server, or correct DATABASE_URL"
    )


def _missing(line: str, url: URL) -> InfrastructureError:
    # The server knows what it was asked for; a URL may leave that to libpq's other ways to name a database.
    told = re.search('"(.+)"', line)
    name = told[1] if told else url.database or url.username
    return DatabaseMissing(
        f'the server at {address_of(url)} has no database "{name}": create it (`createdb {name}`), '
        "or correct DATABASE_URL"
    )


def _login_refused(reason: str, url: URL) -> InfrastructureError:
    return LoginRefused(
        f'PostgreSQL at {address_of(url)} does not let user "{url.username}" in ({reason}): '
        "correct the user and password in DATABASE_URL, or the server's pg_hba.conf"
    )


def _permission_denied(reason: str, url: URL) -> InfrastructureError:
    if "row-level security" in reason:
        return PermissionDenied(
            f'policies keep rows of {database_of(url)} from user "{url.username}" ({reason}): '
            f'`ALTER ROLE "{url.username}" BYPASSRLS`, or connect as the owner'
        )
    return PermissionDenied(
        f'user "{url.username}" lacks a right in {database_of(url)} ({reason}): '
        "grant it, or connect as the owner"
    )


def _not_migrated(reason: str, url: URL) -> InfrastructureError:
    ours = _OUTBOX_NAME.search(reason)
    remedy = outbox_remedy(ours["schema"]) if ours else "run the migration that adds it"
    return SchemaNotMigrated(f"{database_of(url)} is not migrated ({reason}): {remedy}")


def _name_taken(reason: str, url: URL) -> InfrastructureError:
    return NameTaken(
        f"{database_of(url)} has something of that name already ({reason}): "
        "rename it, or give the outbox a schema of its own with OUTBOX_SCHEMA"
    )


def _no_schema(reason: str, url: URL) -> InfrastructureError:
    return PermissionDenied(
        f'user "{url.username}" has no schema to work in ({reason}): '
        "set its search_path, grant USAGE on the schema, or set OUTBOX_SCHEMA"
    )


def _read_only(reason: str, url: URL) -> InfrastructureError:
    return PermissionDenied(
        f"PostgreSQL at {address_of(url)} is read-only ({reason}): connect to the primary server"
    )


def _full(reason: str, url: URL) -> InfrastructureError:
    return ServerFull(
        f"PostgreSQL at {address_of(url)} has no connection left ({reason}): "
        "lower the pool sizes, or raise max_connections"
    )


def _unknown_parameter(reason: str, url: URL) -> InfrastructureError | None:
    # The same state tells of types and other objects that a statement misses.
    return _bad_url(reason, url) if "configuration parameter" in reason else None


def _bad_url(reason: str, _: URL) -> InfrastructureError:
    return BadSetting(
        "DATABASE_URL", f"has a parameter that cannot be used ({reason}): correct it or take it out"
    )


def _first_line(error: BaseException) -> str:
    """Take the server's own message: SQLAlchemy's adapter puts the class's name before it."""
    line = str(error).partition("\n")[0]
    return re.sub(r"^<class '[^']*'>: ", "", line).rstrip(".")


_BY_STATE: dict[str, Callable[[str, URL], InfrastructureError | None]] = {
    "3D000": _missing,
    "28P01": _login_refused,
    "28000": _login_refused,
    "42501": _permission_denied,
    "25006": _read_only,
    "3F000": _no_schema,
    "42P01": _not_migrated,
    "42P07": _name_taken,
    "42703": _not_migrated,
    "42704": _unknown_parameter,
    "53300": _full,
    "08003": lost,
    "08006": lost,
    "57P01": lost,  # an administrator ended the session
    "57P02": _unreachable,  # the server is recovering from a crash
    "57P03": _unreachable,  # the server is starting or stopping
}
_BY_CLASS: dict[str, Callable[[str, URL], InfrastructureError | None]] = {"08": _unreachable}
