"""Doctor's look at the rights of whoever asks: what a role of its kind lacks (R12).

A relay learns of a missing right when it first needs it, which may be after weeks, at its first dead letter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.operations.verdicts import Check, fail, ok
from outbox_kernel.infrastructure.outbox.sql.inspection import RIGHTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outbox_kernel.infrastructure.operations.desk import Desk

_ALL = "SELECT, INSERT, UPDATE, DELETE"
RELAY: Mapping[str, str] = {
    "outbox_relays": _ALL,
    "outbox_deliveries": _ALL,
    "outbox_cursors": _ALL,
    "outbox_cursors_past": _ALL,
    "outbox_receipts": _ALL,
    "outbox_events": "SELECT, DELETE",
    "outbox_arrivals": "SELECT, DELETE",
    "outbox_progress": "SELECT, INSERT, DELETE",
    "outbox_servers": "SELECT, INSERT, UPDATE",
    "outbox_log": "SELECT",
    "outbox_cursor_places": "SELECT",
    "outbox_subject_keys": "SELECT",
    "outbox_subscriptions": "SELECT, INSERT, UPDATE",
    "outbox_alembic_version": "SELECT",
}
"""What a relay needs; the reference says why, and a test holds both to be the same."""
# What nobody else needs: whoever may do any of this is to relay.
OF_RELAYS_ALONE = frozenset(
    {
        ("INSERT", table)
        for table in ("outbox_relays", "outbox_cursors", "outbox_progress", "outbox_subscriptions")
    }
)


async def examine_rights(desk: Desk) -> list[Check]:
    """Check that who is to relay may do all that a relay does."""
    wanted = [(right, table) for table, rights in RELAY.items() for right in rights.split(", ")]
    rows = await desk.run(
        RIGHTS, rights=[right for right, _ in wanted], tables=[table for _, table in wanted]
    )
    held = {(row["right_name"], row["table_name"]) for row in rows if row["has_it"]}
    lacking = [(row["right_name"], row["table_name"]) for row in rows if not row["has_it"]]
    if not lacking:
        return [ok("rights", "this user may do all that a relay does to the outbox")]
    if not held & OF_RELAYS_ALONE:
        return [ok("rights", "this user is none to relay with: it may look, and what it was granted beside")]
    by_table: dict[str, list[str]] = {}
    for right, table in lacking:
        by_table.setdefault(table, []).append(right)
    told = " and ".join(f"{', '.join(rights)} on {table}" for table, rights in by_table.items())
    role, full_names = rows[0]["role"], {row["table_name"]: row["full_name"] for row in rows}
    remedy = "; ".join(
        f'GRANT {", ".join(rights)} ON {full_names[table]} TO "{role}"' for table, rights in by_table.items()
    )
    return [fail("rights", f"user {role!r} is to relay, and lacks {told}", remedy)]
