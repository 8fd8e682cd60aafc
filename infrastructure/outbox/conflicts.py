"""Which database errors mean that another writer was first (C4), and the sentence for each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import UUID

from sqlalchemy.exc import SAWarning
from sqlalchemy.orm.exc import StaleDataError

from outbox_kernel.infrastructure.outbox.tables import AGGREGATE_STREAM_KEY, EVENT_ID_KEY
from outbox_kernel.kernel.errors import AggregateIdTaken, ConcurrencyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.exc import DBAPIError

_LOST_RACES = {
    "40001": "the database found that this transaction and another cannot both hold (serialization failure)",
    "40P01": "this transaction and another waited for each other's rows (deadlock)",
}
_UNIQUE_VIOLATION = "23505"
_KEYS = "_outbox_keys"

# The primary keys of the mapped aggregates, by table and constraint.
aggregate_keys: set[tuple[str, str]] = set()


# Functions for an `except` clause, not context managers: one that meets no error costs nothing.


def raise_conflict(error: BaseException) -> None:
    """Raise ConcurrencyError in place of an error that means: load again and retry."""
    conflict = as_conflict(error)
    if conflict is not None:
        raise conflict from error


def raise_lost_race(error: DBAPIError) -> None:
    """Do so for what any statement may meet; a key that is taken stays the error of whoever wrote the statement."""
    if sqlstate(error) in _LOST_RACES:
        raise _lost_race(error) from error


def as_conflict(error: BaseException) -> ConcurrencyError | None:
    """Return the ConcurrencyError that a database error amounts to, or None."""
    if isinstance(error, StaleDataError) or _warns_of_a_stale_row(error):
        return changed_first(error)
    state = sqlstate(error)
    if state in _LOST_RACES:
        return _lost_race(error)
    if state == _UNIQUE_VIOLATION and constraint_name(error) == AGGREGATE_STREAM_KEY:
        return _stream_conflict(error)
    if state == _UNIQUE_VIOLATION and constraint_name(error) == EVENT_ID_KEY:
        return _stored_already(error)
    if state == _UNIQUE_VIOLATION and _violated_key(error) in aggregate_keys:
        return AggregateIdTaken(
            f"a new aggregate's id is in {_violated_key(error)[0]} already: another writer created it first; "
            "load that one, or take a new id"
        )
    return None


def _warns_of_a_stale_row(error: BaseException) -> bool:
    """Whether this is the warning for a part that is gone, which is met before its whole where warnings are errors."""
    return isinstance(error, SAWarning) and "expected to delete" in str(error)


def changed_first(error: BaseException) -> ConcurrencyError:
    """Return the error for a row that is not as it was loaded."""
    table = re.search(r"table '([^']+)'", str(error))
    return ConcurrencyError(
        f"another transaction changed or deleted a row of {table[1] if table else 'an aggregate'} first; "
        "nothing was stored, load it again and retry"
    )


def sqlstate(error: BaseException) -> str | None:
    """Return the SQLSTATE of a database error, through SQLAlchemy's wrapping."""
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return state if isinstance(state, str) else None


def constraint_name(error: BaseException) -> str | None:
    """Return the name of the constraint that a database error is about."""
    return _told(error, "constraint_name")


def table_name(error: BaseException) -> str | None:
    """Return the name of the table that a database error is about."""
    return _told(error, "table_name")


def detail_of(error: BaseException) -> str | None:
    """Return what the server adds to a database error: the key that is taken, or the row that it refused."""
    return _told(error, "detail") or _told(error, "message_detail")


def driver_error(error: BaseException) -> BaseException | None:
    """Return what the driver itself raised, under SQLAlchemy's wrapping."""
    orig = getattr(error, "orig", None)
    # SQLAlchemy has errors of its own for asyncpg's; those of psycopg are as they came.
    return getattr(orig, "__cause__", None) or orig


def _told(error: BaseException, field: str) -> str | None:
    told = driver_error(error)
    # psycopg keeps what the server said beside its message, asyncpg on the error itself.
    value = getattr(getattr(told, "diag", told), field, None)
    return value if isinstance(value, str) else None


def _violated_key(error: BaseException) -> tuple[str, str]:
    return str(table_name(error)), str(constraint_name(error))


def note_keys(error: BaseException, keys: Mapping[UUID, str | None]) -> None:
    """Leave on a database error the ids as written, of which the server knows only the UUIDs."""
    error.__dict__[_KEYS] = keys


def id_taken(aggregate_type: str, aggregate_id: UUID, key: str | None) -> AggregateIdTaken:
    """Return the error for a new aggregate whose id has events."""
    return AggregateIdTaken(
        f"{aggregate_type} {key or aggregate_id} has events already: another writer created it first, or it lived "
        "before and was deleted; a new aggregate needs an id of its own",
        aggregate_type=aggregate_type,
        aggregate_id=aggregate_id,
        aggregate_key=key,
    )


def _lost_race(error: BaseException) -> ConcurrencyError:
    return ConcurrencyError(f"{_LOST_RACES[sqlstate(error) or '']}; nothing was stored, load again and retry")


def _stored_already(error: BaseException) -> ConcurrencyError:
    found = re.search(r"=\(([0-9a-f-]{36})\)", str(detail_of(error)))
    return ConcurrencyError(
        f"event {found[1] if found else 'of this transaction'} is in the outbox already: a copy of its aggregate, or "
        "an attempt whose answer was lost, committed it before, or an event made with attrs.evolve has its event_id; "
        "load it again and look before you retry"
    )


def _stream_conflict(error: BaseException) -> ConcurrencyError:
    detail = str(detail_of(error))
    found = re.search(r"=\((?P<type>.*), (?P<id>[0-9a-f-]{36}), (?P<version>\d+)\)", detail)
    if found is None:
        return ConcurrencyError("another transaction wrote this aggregate first; load it again and retry")
    aggregate_type, aggregate_id, version = found["type"], UUID(found["id"]), int(found["version"])
    key = error.__dict__.get(_KEYS, {}).get(aggregate_id)
    if version == 1:
        return id_taken(aggregate_type, aggregate_id, key)
    return ConcurrencyError(
        f"another transaction wrote version {version} of {aggregate_type} {key or aggregate_id} first; "
        "load it again and retry",
        aggregate_type=aggregate_type,
        aggregate_id=aggregate_id,
        aggregate_key=key,
    )
