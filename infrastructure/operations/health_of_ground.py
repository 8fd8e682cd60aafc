"""Doctor's look at what the log stands on: how sessions begin, what they may see, where positions come from (R12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.operations.verdicts import Check, fail, ok
from outbox_kernel.infrastructure.outbox.sql.inspection import HIDDEN, SEQUENCE, SESSION_DEFAULTS

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.operations.desk import Desk


async def examine_ground(desk: Desk) -> list[Check]:
    """Check the sessions of whoever asks, and the positions of the log."""
    return [await _sessions(desk), await _row_security(desk), await _positions(desk)]


async def _sessions(desk: Desk) -> Check:
    found = await desk.run_one(SESSION_DEFAULTS)
    role = found["role"]
    if found["is_read_only"]:
        return fail(
            "sessions",
            f"sessions of user {role!r} begin read-only, so a relay of that user writes nothing",
            f'ALTER ROLE "{role}" SET default_transaction_read_only = off, or connect as another',
        )
    if found["isolation"] != "read committed":
        return fail(
            "sessions",
            f"sessions of user {role!r} begin as {found['isolation']}, in which relays fail beside one another",
            f"ALTER ROLE \"{role}\" SET default_transaction_isolation = 'read committed', or connect as another",
        )
    return ok("sessions", "they begin with what a relay needs")


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
