"""The outbox of the store in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from outbox_kernel.kernel.events import stamp_event
from outbox_kernel.kernel.serialization import deserialize_event

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.kernel.context import Header
    from outbox_kernel.kernel.events import DomainEvent


class CommittedEvent(NamedTuple):
    """One record of the outbox; the names are those of the columns of `outbox_events`."""

    event_id: UUID
    event_type: str
    event_version: int
    aggregate_type: str | None
    aggregate_id: UUID | None
    aggregate_version: int | None
    payload: str
    occurred_at: datetime
    aggregate_key: str | None
    not_before: datetime | None
    sensitive: str | None
    headers: Mapping[str, Header]
    position: int

    @property
    def event(self) -> DomainEvent:
        """The event, restored from the stored payload as a relay would restore it."""
        event = deserialize_event(self.event_type, self.payload, self.event_version)
        stamp_event(
            event,
            self.aggregate_type,
            self.aggregate_id,
            self.aggregate_version,
            aggregate_key=self.aggregate_key,
            not_before=self.not_before,
        )
        return event
