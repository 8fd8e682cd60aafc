"""Doctor's look at what the log stands on: how sessions begin, what they may see, where positions come from (R12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.operations.limits import TIMEOUT_SECONDS_MIN
from outbox_kernel.infrastructure.operations.verdicts import Check, fail, ok, warn
from outbox_kernel.infrastructure.outbox.sql.inspection import HIDDEN, OPEN_TO_ALL, SEQUENCE, SESSION_DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from outbox_kernel.infrastructure.operations.desk import Desk

_TIMEOUTS = (
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "transaction_timeout",
)


async def examine_ground(desk: Desk) -> list[Check]:
    """Check the sessions of whoever asks, what they see, and the positions of the log."""
    sessions, sight = [*await _sessions(desk), await _schemas(desk)], await _row_security(desk)
    if sight.state != "ok":
        return [*sessions, sight]  # whatever is read is an error
    return [*sessions, sight, await _positions(desk)]


async def _sessions(desk: Desk) -> list[Check]:
    """Check what sessions begin with; those of relays pin what they need, and those of handlers do not."""
    settings = {row["name"]: row["value"] for row in await desk.run(SESSION_DEFAULTS)}
    role = settings.pop("role")
    found = [*_refused(role, settings), *_unlike(role, settings), *_short(role, settings)]
    return found or [ok("sessions", "they begin with what handlers need")]


def _refused(role: str, settings: Mapping[str, str]) -> Iterator[Check]:
    if settings["default_transaction_read_only"] == "on":
        yield fail(
            "sessions",
            f"sessions of user {role!r} begin read-only, so that neither handlers nor the application can write",
            f'ALTER ROLE "{role}" SET default_transaction_read_only = off, or connect as another',
        )


def _unlike(role: str, settings: Mapping[str, str]) -> Iterator[Check]:
    isolation = settings["default_transaction_isolation"]
    if isolation not in ("read committed", "read uncommitted"):
        yield warn(
            "sessions",
            f"sessions of user {role!r} begin as {isolation}: of handlers that write at once those that lose the race "
            "run again, uncharged",
            f"if that is not meant, ALTER ROLE \"{role}\" SET default_transaction_isolation = 'read committed'",
        )


def _short(role: str, settings: Mapping[str, str]) -> Iterator[Check]:
    for name in _TIMEOUTS:
        milliseconds = float(settings.get(name, 0))
        if 0 < milliseconds < TIMEOUT_SECONDS_MIN * 1_000:
            yield warn(
                "sessions",
                f"{name} is {milliseconds:g} ms for sessions of user {role!r}: what handlers do may fail by that alone",
                f"ALTER ROLE \"{role}\" SET {name} = '30s', or what a handler may take",
            )


async def _schemas(desk: Desk) -> Check:
    """Check the search path: those of relays pin it, and those of handlers and of the application do not."""
    found = await desk.run(OPEN_TO_ALL)
    if not found:
        return ok("schemas", "nobody creates in them who was not granted it by name")
    names = ", ".join(row["name"] for row in found)
    return warn(
        "schemas",
        f"everybody may create in {names}, where sessions of user {found[0]['role']!r} look for functions: one of "
        "somebody's own that fits better than the server's runs with that user's rights",
        f"REVOKE CREATE ON SCHEMA {names} FROM PUBLIC",
    )


async def _row_security(desk: Desk) -> Check:
    hidden = await desk.run(HIDDEN)
    if not hidden:
        return ok("row security", "it hides nothing of the outbox")
    role, tables = hidden[0]["role"], ", ".join(row["table_name"] for row in hidden)
    return fail(
        "row security",
        f"policies keep rows of {tables} from user {role!r}: what a relay does not see it does not deliver",
        f'ALTER ROLE "{role}" BYPASSRLS, or connect as the owner',
    )


async def _positions(desk: Desk) -> Check:
    found = await desk.run_one(SEQUENCE)
    given, highest = found["given"], found["highest"] or 0
    if not found["may_look"]:
        return ok("positions", "not looked at: this user may not read their sequence")
    if (given or 0) >= highest:
        return ok("positions", "their sequence is ahead of the log")
    name, table = found["name"], found["table_name"]
    return fail(
        "positions",
        f"their sequence stands at {given or 0}, and the log at {highest}, as after a copy that left it behind: what "
        "is written now is refused, or stands before what happened earlier",
        f"SELECT setval('{name}', (SELECT max(position) FROM {table}))",  # noqa: S608 - to be read, and not sent
    )
