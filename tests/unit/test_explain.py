"""What a driver raises becomes one sentence with a remedy (O1, R14)."""

from __future__ import annotations

import socket

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

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
from outbox_kernel.infrastructure.postgres.explain import explain, explained, sqlstate_of

URL = "postgresql://bob:s3cret@db.example:5433/shop"


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ConnectionRefusedError(111, "refused"), DatabaseUnreachable, "db.example:5433 (connection refused)"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed"),
            DatabaseUnreachable,
            "(connection refused)",
        ),
        (TimeoutError(), DatabaseUnreachable, "(no answer in time)"),
        (socket.gaierror(-2, "unknown"), DatabaseUnreachable, "(the host name is unknown)"),
        (FileNotFoundError(2, "missing"), DatabaseUnreachable, "(there is no socket)"),
        (ConnectionError("it rejected SSL upgrade"), DatabaseUnreachable, "(it rejected SSL upgrade)"),
        (
            asyncpg.ConnectionDoesNotExistError("gone"),
            DatabaseUnreachable,
            "was lost (gone): if that goes on",
        ),
        (asyncpg.AdminShutdownError("ended"), DatabaseUnreachable, "was lost (ended): if that goes on"),
        (
            asyncpg.CannotConnectNowError("starting up"),
            DatabaseUnreachable,
            "(starting up): start the server",
        ),
        (asyncpg.InterfaceError("connection is closed"), DatabaseUnreachable, "was lost (it was closed)"),
        (asyncpg.InvalidCatalogNameError("no"), DatabaseMissing, 'has no database "shop": create it'),
        (asyncpg.InvalidPasswordError("no"), LoginRefused, 'does not let user "bob" in (no): correct'),
        (asyncpg.InvalidAuthorizationSpecificationError("no"), LoginRefused, 'does not let user "bob" in'),
        (
            asyncpg.InsufficientPrivilegeError("no"),
            PermissionDenied,
            'user "bob" lacks a right in database "shop"',
        ),
        (asyncpg.DuplicateTableError("no"), NameTaken, "rename it, or give the outbox a schema of its own"),
        (asyncpg.InvalidSchemaNameError("no"), PermissionDenied, "set its search_path, grant USAGE"),
        (
            asyncpg.ReadOnlySQLTransactionError("no"),
            PermissionDenied,
            "is read-only (no): connect to the primary",
        ),
        (asyncpg.TooManyConnectionsError("no"), ServerFull, "has no connection left"),
        (
            asyncpg.UndefinedTableError('relation "outbox_events" does not exist'),
            SchemaNotMigrated,
            "run `outbox migrate`",
        ),
        (
            asyncpg.UndefinedTableError('relation "events.outbox_events" does not exist'),
            SchemaNotMigrated,
            "run `outbox migrate`",
        ),
        (
            asyncpg.UndefinedColumnError('column "x" of relation "outbox_events" does not exist'),
            SchemaNotMigrated,
            "run `outbox migrate`",
        ),
        (
            asyncpg.UndefinedTableError('relation "accounts" does not exist'),
            SchemaNotMigrated,
            'database "shop" is not migrated (relation "accounts" does not exist): run the migration',
        ),
        (
            asyncpg.UndefinedObjectError('unrecognized configuration parameter "channel_binding"'),
            BadSetting,
            "DATABASE_URL has a parameter that cannot be used",
        ),
        (asyncpg.ClientConfigurationError("sslmode"), BadSetting, "DATABASE_URL has a parameter"),
    ],
)
def test_each_refusal_is_a_sentence_that_says_what_to_do(
    error: Exception, kind: type[InfrastructureError], words: str
) -> None:
    wrapped = DBAPIError("SELECT 1", None, error)
    for each in (error, wrapped):
        found = explain(each, URL)
        assert type(found) is kind
        assert words in str(found)
        assert "s3cret" not in str(found)
        assert "\n" not in str(found)


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1", "postgresql://127.0.0.1:5432/"])
@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InsufficientPrivilegeError("no"),
        asyncpg.DuplicateTableError("no"),
        asyncpg.UndefinedTableError("no"),
    ],
)
def test_a_url_that_names_no_database_is_told_as_one(error: Exception, url: str) -> None:
    """O1: a database "None", or "", is none that anybody has."""
    assert "the default database (DATABASE_URL names none) " in str(explain(error, url))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        asyncpg.UniqueViolationError("no"),
        asyncpg.UndefinedObjectError('type "x" does not exist'),
    ],
)
def test_what_is_no_such_refusal_is_left_alone(error: Exception) -> None:
    assert explain(error, URL) is None
    with pytest.raises(type(error)) as raised, explained(URL):
        raise error
    assert raised.value is error


def test_the_drivers_error_stays_the_cause() -> None:
    with pytest.raises(DatabaseUnreachable) as raised, explained(URL):
        raise ConnectionRefusedError
    assert isinstance(raised.value.__cause__, ConnectionRefusedError)


def test_what_is_explained_already_is_not_explained_again() -> None:
    refusal = DatabaseMissing("no such database")
    with pytest.raises(DatabaseMissing) as raised, explained(URL):
        raise refusal
    assert raised.value is refusal


def test_the_sqlstate_is_found_through_every_wrapping() -> None:
    wrapped = RuntimeError()
    wrapped.__cause__ = DBAPIError("SELECT 1", None, asyncpg.LockNotAvailableError("locked"))
    assert sqlstate_of(wrapped) == "55P03"
    assert sqlstate_of(ValueError()) is None
