"""Events that cannot be read, since they were written past us: dead for whom they are due (R9)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.relay.running import Verdict
from outbox_kernel.infrastructure.relay.telling import about_event

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.relay.roster import CarriedAny
    from outbox_kernel.infrastructure.relay.rows import LoggedEvent

_log = logging.getLogger("outbox.relay")

UNREADABLE = (
    "it cannot be read: a moment out of range, or a payload or headers that are no object; mend the row and retry it, "
    "or skip it"
)


def buried(carried: CarriedAny, row: LoggedEvent, attempts: int) -> Verdict:
    """Decide about an event that cannot be read."""
    _log.critical(
        "%s %s is dead for event %s %s: %s",
        *(carried.kind, carried.name, row.event_type, row.event_id, UNREADABLE),
        extra={"action": "delivery.unreadable", carried.kind: carried.name, **about_event(row)},
    )
    return Verdict("dead", attempts + 1, 0.0, UNREADABLE)
