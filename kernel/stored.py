"""An event as it is stored, for handlers of patterns: they need not know its class (K5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.kernel.context import Header
    from outbox_kernel.kernel.events import DomainEvent


@attrs.frozen(kw_only=True)
class StoredEvent:
    """An event as the outbox holds it; the names are those of the columns of `outbox_events`."""

    event_id: UUID
    event_type: str
    event_version: int
    # Not shown: whoever knows no class cannot tell which of its fields are secrets (K11).
    payload: dict[str, Any] = attrs.field(repr=False, hash=False)
    occurred_at: datetime
    headers: Mapping[str, Header] = attrs.field(factory=dict, hash=False)
    aggregate_type: str | None = None
    aggregate_id: UUID | None = None
    aggregate_key: str | None = None
    aggregate_version: int | None = None
    position: int = 0
    """Where it stands in the outbox; 0: it has no row."""

    @classmethod
    def of(
        cls, event: DomainEvent, *, position: int = 0, headers: Mapping[str, Header] | None = None
    ) -> StoredEvent:
        """Return an event as it would be stored."""
        from outbox_kernel.kernel.envelope import enveloped  # noqa: PLC0415 - it loads cattrs, which few need
        from outbox_kernel.kernel.serialization import parsed  # noqa: PLC0415 - likewise

        envelope = enveloped(event)
        return cls(
            event_id=envelope.event_id,
            event_type=envelope.event_type,
            event_version=envelope.event_version,
            payload=parsed(envelope.event_type, envelope.payload),
            occurred_at=envelope.occurred_at,
            headers=dict(headers or {}),
            aggregate_type=envelope.aggregate_type,
            aggregate_id=envelope.aggregate_id,
            aggregate_key=envelope.aggregate_key,
            aggregate_version=envelope.aggregate_version,
            position=position,
        )
