"""The one place where an error becomes an answer: RFC 9457, `application/problem+json`."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from attrs import Factory, frozen
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException

from outbox_kernel.infrastructure.errors import (
    DatabaseMissing,
    DatabaseUnreachable,
    LoginRefused,
    PermissionDenied,
    SchemaNotMigrated,
    ServerFull,
)
from outbox_kernel.infrastructure.http.authentication import NotOneOfOurUsers, Unauthenticated
from outbox_kernel.infrastructure.http.limits import ERRORS_SHOWN_MAX, NAME_CHARACTERS_MAX, RETRY_SECONDS
from outbox_kernel.infrastructure.postgres.explain import sqlstate_of
from outbox_kernel.infrastructure.postgres.outages import is_outage
from outbox_kernel.kernel.errors import ConcurrencyError, UnserializableEvent
from outbox_kernel.kernel.refusals import Conflict, DomainError, Forbidden, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

PROBLEM_TYPE = "application/problem+json"
# RFC 9110 renamed them, and which name Python knows depends on its age.
_RENAMED = {413: "Content Too Large", 422: "Unprocessable Content"}
KIND_PREFIX = "urn:problem:"
RETRY_AFTER = "retry-after"

# What passes when the database is mended, without a change of ours; who asked may ask again.
_PASSING = (
    DatabaseUnreachable,
    DatabaseMissing,
    LoginRefused,
    ServerFull,
    SchemaNotMigrated,
    PoolTimeoutError,
)
# PostgreSQL's class of what a value cannot be: a NUL in text, a number out of range, a text too long.
_DATA_EXCEPTION = "22"
_LOST_RACES = ("40001", "40P01")
_CANCELLED = "57014"

_STATUS_OF_REFUSAL: tuple[tuple[type[DomainError], int], ...] = (
    (NotFound, HTTPStatus.NOT_FOUND),
    (Conflict, HTTPStatus.CONFLICT),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (DomainError, HTTPStatus.UNPROCESSABLE_ENTITY),
)


@frozen
class Problem:
    """What went wrong, for whoever asked; never more than they may know."""

    status: int
    kind: str
    detail: str
    members: Mapping[str, Any] = Factory(dict)
    headers: Mapping[str, str] = Factory(dict)

    def body(self, request_id: str) -> bytes:
        """Write it as JSON; the request's id finds it in the log."""
        told = {
            "type": KIND_PREFIX + self.kind,
            "title": _RENAMED.get(self.status) or HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "request_id": request_id,
            **self.members,
        }
        # In ASCII, so that no character of what was sent can make it unwritable.
        return json.dumps(told).encode()


class Refused(Exception):
    """Raised by the door itself: the request ends with this problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.detail)


UNEXPECTED = Problem(
    500, "unexpected", "something went wrong on this side, and is in the log: tell us the request's id"
)
CONCURRENT = Problem(
    409,
    "concurrent_change",
    "somebody else changed this at the same moment: look at it again, and repeat what still matters",
)
UNAVAILABLE = Problem(
    503,
    "unavailable",
    "this service cannot reach what it needs right now: send the request again later, after a look whether it was done",
    headers={RETRY_AFTER: str(RETRY_SECONDS)},
)


def problem_of(error: BaseException) -> Problem:
    """Say what an error means to whoever asked; what nobody has thought of is UNEXPECTED."""
    for kind, told in _MEANINGS:
        if isinstance(error, kind):
            return told(error)
    return UNEXPECTED


def _refusal(error: DomainError) -> Problem:
    status = next(status for kind, status in _STATUS_OF_REFUSAL if isinstance(error, kind))
    return Problem(status, error.kind, str(error))


def _of_database(error: Exception) -> Problem:
    state = sqlstate_of(error) or ""
    if is_outage(error) or state == _CANCELLED:
        return UNAVAILABLE
    if state in _LOST_RACES:
        return CONCURRENT
    if state.startswith(_DATA_EXCEPTION):
        return Problem(
            422, "cannot_be_stored", "a value in the request cannot be stored as it is: correct it"
        )
    return UNEXPECTED


def _of_payload(error: UnserializableEvent) -> Problem:
    return Problem(422, "cannot_be_stored", f"{error.field} {error.reason}", {"field": error.field})


def _of_framework(error: HTTPException) -> Problem:
    status = HTTPStatus(error.status_code)
    sentences = {
        404: "there is nothing at this address",
        405: "this address does not take that method",
        400: "the body cannot be read: it has a number that is too long",
    }
    detail = sentences.get(status) or str(error.detail)
    return Problem(status, status.name.lower(), detail, headers=dict(error.headers or {}))


def _invalid(errors: Iterable[Mapping[str, Any]]) -> Problem:
    found = list(errors)
    if found and found[0]["type"] == "json_invalid":
        where = found[0]["loc"][-1]
        return Problem(400, "malformed_json", f"the body is no JSON: it goes wrong at character {where}")
    # What was sent is not sent back: it may be a secret, or no text.
    told = [
        {"pointer": pointer_to(each["loc"]), "detail": _ascii(each["msg"].removeprefix("Value error, "))}
        for each in found[:ERRORS_SHOWN_MAX]
    ]
    places = ", ".join(each["pointer"] for each in told)
    return Problem(
        422, "invalid", f"the request is not as the documentation says, at {places}", {"errors": told}
    )


def pointer_to(location: Iterable[Any]) -> str:
    """Name the place as RFC 6901 does, after the part of the request that it is in; long names are cut."""
    parts = [_ascii(_cut(str(part))).replace("~", "~0").replace("/", "~1") for part in location]
    return "/".join(["#" if part == "body" else part for part in parts[:1]] + parts[1:])


def _cut(name: str) -> str:
    return name if len(name) <= NAME_CHARACTERS_MAX else f"{name[:NAME_CHARACTERS_MAX]}..."


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _unauthenticated(error: Unauthenticated) -> Problem:
    return Problem(401, "unauthenticated", str(error), headers={"www-authenticate": "Bearer"})


# The first that fits holds.
_MEANINGS: tuple[tuple[type[BaseException], Callable[[Any], Problem]], ...] = (
    (Refused, lambda error: error.problem),
    (DomainError, _refusal),
    (HTTPException, _of_framework),
    (RequestValidationError, lambda error: _invalid(error.errors())),
    (Unauthenticated, _unauthenticated),
    (NotOneOfOurUsers, lambda error: Problem(403, "not_one_of_our_users", str(error))),
    (ConcurrencyError, lambda _: CONCURRENT),
    (UnserializableEvent, _of_payload),
    *((kind, lambda _: UNAVAILABLE) for kind in _PASSING),
    # A role without a right is the operator's to mend; a server that takes no writes tells the same way.
    (PermissionDenied, _of_database),
    (DBAPIError, _of_database),
)
