"""Runs that have ended, for whoever counts or traces them."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import attrs

from outbox_kernel.infrastructure.telemetry import instruments as names
from outbox_kernel.infrastructure.telemetry.counting import ServerClock, SubscriptionCounts

ID = UUID("0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3")
LABELS = {
    names.SYSTEM: "outbox",
    names.OPERATION: "process",
    names.DESTINATION: "outbox",
    names.SUBSCRIPTION: "shop.Pack",
}


def row(*, created: float | None = 0.0, headers: str = "{}", **others: Any) -> dict[str, Any]:
    """An event as a relay reads it, written so many seconds after 2000 began."""
    return {
        "event_id": ID,
        "event_type": "shop.ordered",
        "aggregate_type": "shop.customer",
        "aggregate_id": ID,
        "aggregate_key": None,
        "created_at": None if created is None else round(created * 1_000_000).to_bytes(8, "big", signed=True),
        "not_before": None,
        "headers": headers,
        **others,
    }


@attrs.frozen(eq=False)
class Ended:
    """What a run came to."""

    status: str = "done"
    error_message: str | None = None


@attrs.frozen(eq=False)
class Over:
    """A run that is over."""

    row: dict[str, Any] = attrs.Factory(row)
    started: float = attrs.field(factory=time.monotonic)
    attempts: int = 0
    rows: list[dict[str, Any]] | None = None
    detached: bool = False


def clock(*, server_seconds: float, at: float) -> ServerClock:
    """A clock of which it is known what it showed at a moment of ours."""
    found = ServerClock()
    found.note(at, server_seconds, at)
    return found


def counts() -> SubscriptionCounts:
    """Where a subscription's runs are counted, by a server whose clock is ours."""
    return SubscriptionCounts(clock(server_seconds=0.0, at=0.0), LABELS)
