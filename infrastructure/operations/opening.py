"""Opening: events as handlers get them, sealed fields and all; no command shows them (O6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
from outbox_kernel.infrastructure.outbox.sealing.reading import KeysInHand
from outbox_kernel.infrastructure.outbox.sealing.requiring import in_force
from outbox_kernel.infrastructure.outbox.sql.named import arguments
from outbox_kernel.infrastructure.outbox.sql.subject_keys import SEALED_EVENTS

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.master_keys import MasterKeys
    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.kernel import DomainEvent


async def opened(desk: Desk, event_type: str, masters: MasterKeys | None = None) -> list[DomainEvent]:
    """Return all events of a type, in the order of the log, as a handler would get them now."""
    text, names = SEALED_EVENTS.in_schema(desk.schema)
    given = arguments(names, {"event_type": event_type})
    rows = await desk.connection.fetch(text, *given, record_class=LoggedEvent)
    await KeysInHand(in_force(masters)).give(rows, desk)
    return [row.restored() for row in rows]
