"""What the database says of subscriptions (R2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.outbox.sql import subscriptions as sql
from outbox_kernel.infrastructure.relay.roster import Subscription

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.relay.log import Log


async def subscriptions_now(control: Log) -> tuple[dict[str, Subscription], int]:
    """Return all subscriptions by name, and their revision."""
    rows = await control.run(sql.SUBSCRIPTIONS)
    found = {
        row["name"]: Subscription(
            *(row["name"], row["kind"], tuple(row["patterns"]), row["ordered"]),
            *(row["paused"], row["retired"], row["source"]),
        )
        for row in rows
    }
    return found, rows[0]["revision"] if rows else 0
