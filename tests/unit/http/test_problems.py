"""What each error means to whoever asked."""

from __future__ import annotations

import json

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from contexts.accounts.domain import AccountNotFound, EmailTaken, InvalidEmail
from outbox_kernel.errors import AggregateIdTaken, ConcurrencyError, UnserializableEvent
from outbox_kernel.infrastructure.errors import (
    DatabaseUnreachable,
    NameTaken,
    PermissionDenied,
    SchemaNotMigrated,
)
from outbox_kernel.infrastructure.http import Unauthenticated
from outbox_kernel.infrastructure.http.problems import UNEXPECTED, Problem, Refused, problem_of
from outbox_kernel.kernel import DomainError, Forbidden
from tests.asking import USER


class Refusal(DomainError):
    kind = "told_off"


class FromDatabase(Exception):
    def __init__(self, sqlstate: str = "22021") -> None:
        self.sqlstate = sqlstate


def refused_by_database(kind: type[Exception], sqlstate: str) -> Exception:
    error = kind(SECRET)
    error.__cause__ = FromDatabase(sqlstate)
    return error


SECRET = "host 10.0.0.7, table secrets"


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (EmailTaken(), 409, "email_taken"),
        (AccountNotFound(USER), 404, "account_not_found"),  # type: ignore[arg-type]
        (InvalidEmail("this is no e-mail address"), 422, "invalid_email"),
        (Refusal("no"), 422, "told_off"),
        (DomainError("no"), 422, "rule_broken"),
        (Forbidden("not you"), 403, "forbidden"),
        (ConcurrencyError(SECRET), 409, "concurrent_change"),
        (AggregateIdTaken(SECRET), 409, "concurrent_change"),
        (UnserializableEvent("AccountCreated", "email", "holds a NUL"), 422, "cannot_be_stored"),
        (DBAPIError(SECRET, None, FromDatabase()), 422, "cannot_be_stored"),
        (Unauthenticated("this needs a token"), 401, "unauthenticated"),
        (DatabaseUnreachable(SECRET), 503, "unavailable"),
        (SchemaNotMigrated(SECRET), 503, "unavailable"),
        (PoolTimeoutError(SECRET), 503, "unavailable"),
        *(
            (DBAPIError(SECRET, None, FromDatabase(state)), 503, "unavailable")
            for state in ("25006", "53100", "53200", "53300", "57014", "57P01", "57P03", "08006")
        ),
        (DBAPIError(SECRET, None, FromDatabase("40001")), 409, "concurrent_change"),
        (DBAPIError(SECRET, None, FromDatabase("40P01")), 409, "concurrent_change"),
        (DBAPIError(SECRET, None, FromDatabase("23505")), 500, "unexpected"),
        (
            DBAPIError(SECRET, None, asyncpg.InterfaceError("cannot call: connection is closed")),
            503,
            "unavailable",
        ),
        (refused_by_database(PermissionDenied, "25006"), 503, "unavailable"),
        (refused_by_database(PermissionDenied, "42501"), 500, "unexpected"),
        (NameTaken(SECRET), 500, "unexpected"),
        (DBAPIError(SECRET, None, Exception(SECRET)), 500, "unexpected"),
        (KeyError(SECRET), 500, "unexpected"),
        (Refused(Problem(418, "teapot", "short and stout")), 418, "teapot"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_each_error_has_its_status_and_its_kind(error: Exception, status: int, kind: str) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.kind) == (status, kind)
    assert SECRET not in problem.body("a request").decode()


def test_a_refusal_of_the_domain_is_told_in_its_own_words() -> None:
    assert problem_of(EmailTaken()).detail == str(EmailTaken())


def test_what_capture_refuses_names_the_field() -> None:
    problem = problem_of(UnserializableEvent("AccountCreated", "email", "holds a NUL"))
    assert problem.detail == "email holds a NUL"
    assert problem.members == {"field": "email"}


def test_a_problem_is_written_whatever_it_tells() -> None:
    told = json.loads(Problem(422, "odd", "a lone \ud800").body("id"))
    assert told["detail"] == "a lone \ud800"
    assert told["type"] == "urn:problem:odd"
    assert told["title"] == "Unprocessable Content"


def test_who_has_to_wait_is_told_how_long() -> None:
    assert problem_of(DatabaseUnreachable("gone")).headers == {"retry-after": "5"}


def test_what_nobody_thought_of_says_nothing_of_itself() -> None:
    assert problem_of(RuntimeError(SECRET)) is UNEXPECTED
