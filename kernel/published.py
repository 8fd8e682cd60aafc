"""What a broker is sent of an event: its stored payload, with the envelope's keys where the layout has them (X5)."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.kernel.catalogue import Payload
    from outbox_kernel.kernel.context import Header


def published_body(
    payload: Payload,
    headers: Mapping[str, Header],
    *,
    event_type: str,
    aggregate_type: str | None,
    aggregate_id: UUID | None,
    occurred_at: datetime,
) -> Payload:
    """Return the body of the message that tells others of an event; it takes a stored row and needs no class.

    In `snake` it is the payload, the envelope's keys and the context's, of which the event's own field wins over
    one of its name; registration refuses a field named like a key of the envelope. In `camel` it is the payload.
    """
    if not _is_snake(payload):
        return dict(payload)
    own = {
        **payload,
        "event_type": event_type,
        "aggregate_type": aggregate_type,
        "aggregate_id": None if aggregate_id is None else str(aggregate_id),
        "timestamp": occurred_at.astimezone(UTC).isoformat(),
    }
    return {**own, **{key: value for key, value in headers.items() if key not in own}}


def _is_snake(payload: Payload) -> bool:
    # The key under which every event of this layout has its id; no camelCase key has an underscore.
    return "event_id" in payload
