"""The envelope: an event as the outbox holds it, columns around a payload."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import outbox_kernel.kernel.wire.converter  # noqa: F401 - whoever makes one pays for cattrs at start, not at a commit
from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.errors import AggregateHasNoId
from outbox_kernel.kernel.serialization import serialize_event
from outbox_kernel.kernel.wire.sensitive import sensitive_keys

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.kernel.catalogue import EventType
    from outbox_kernel.kernel.events import DomainEvent


class Envelope(NamedTuple):
    """One outbox row's own part; the field names are the columns' names. Headers are added per flush."""

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
    """As JSON, the payload's keys that are not to be shown; None: there is none."""


def enveloped(event: DomainEvent) -> Envelope:
    """Serialise an event into its envelope, or raise UnserializableEvent (C7)."""
    event_type = catalogue.event_type_of(type(event))
    stamp = event.stamp
    if stamp.aggregate_id is None and stamp.aggregate_version is not None:
        raise AggregateHasNoId(
            f"{event_type.name} is an event of {stamp.aggregate_type} without an id, which its row is to make; use a "
            "session with capture, or flush the aggregate before it records"
        )
    return Envelope(
        event.event_id,
        event_type.name,
        event_type.version,
        stamp.aggregate_type,
        stamp.aggregate_id,
        stamp.aggregate_version,
        serialize_event(event),
        event.occurred_at,
        stamp.aggregate_key,
        stamp.not_before,
        _sensitive(event_type),
    )


@lru_cache(maxsize=1024)
def _sensitive(event_type: EventType) -> str | None:
    return json.dumps(keys) if (keys := sensitive_keys(event_type)) else None
