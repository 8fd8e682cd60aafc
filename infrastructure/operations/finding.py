"""Whether there is such a thing: an event, a handler (O3)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from outbox_kernel.infrastructure.operations.selection import no_event
from outbox_kernel.infrastructure.outbox.sql.inspection import EVENT
from outbox_kernel.infrastructure.outbox.sql.searching import IS_EVENT, IS_NAME

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.operations.desk import Desk


async def has_event(desk: Desk, event: UUID | int) -> bool:
    """Whether there is an event of this id, or at this position."""
    is_id = isinstance(event, UUID)
    found: bool = (
        await desk.run_one(IS_EVENT, event_id=event if is_id else None, position=None if is_id else event)
    )["found"]
    return found


async def id_of(desk: Desk, event: UUID | int) -> UUID:
    """Return the id of the event that is named by it, or by its position."""
    if isinstance(event, UUID):
        return event
    rows = await desk.run(EVENT, event_id=None, position=event)
    if not rows:
        raise no_event(event)
    found: UUID = rows[0]["event_id"]
    return found


async def has_name(desk: Desk, name: str) -> bool:
    """Whether there is a handler or publisher of this name."""
    found: bool = (await desk.run_one(IS_NAME, name=name))["found"]
    return found
