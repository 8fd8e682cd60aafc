"""What each line of the log tells of an event, by the same names everywhere (O4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.relay.rows import LoggedEvent


def about_event(row: LoggedEvent) -> dict[str, object]:
    """Return what a line tells of an event: ids and names, nothing of what it says."""
    aggregate_id = row.aggregate_key or row.aggregate_id
    return {
        "event_id": str(row.event_id),
        "event_type": row.event_type,
        "position": row.position,
        "aggregate_type": row.aggregate_type,
        "aggregate_id": None if aggregate_id is None else str(aggregate_id),
    }
