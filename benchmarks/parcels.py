"""What the benchmarks of capture write: a parcel and its events, through the ORM and by hand."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID  # noqa: TC003 - attrs and cattrs read annotations at run time

from sqlalchemy import Column, MetaData, Table, Text, Uuid
from sqlalchemy.orm import registry

from outbox_kernel.infrastructure.outbox import aggregate_columns, map_aggregate
from outbox_kernel.kernel import AggregateRoot, DomainEvent, aggregate, event, sensitive
from outbox_kernel.kernel.clock import new_id, now


@event("bench.parcel_registered")
class ParcelRegistered(DomainEvent):
    """A payload of the usual size: about 200 bytes."""

    parcel_id: UUID
    recipient: str
    note: str


@event("bench.parcel_registered_sealed")
class ParcelRegisteredSealed(DomainEvent):
    """The same, of which a field is sealed."""

    parcel_id: UUID
    recipient: str = sensitive(subject="parcel_id")
    note: str


@aggregate("bench.parcel")
class Parcel(AggregateRoot):
    """An aggregate of the usual size: a key and a text."""

    id: UUID
    recipient: str

    def register(self, times: int) -> Parcel:
        """Record so many events."""
        for _ in range(times):
            self.record(ParcelRegistered(self.id, self.recipient, NOTE))
        return self

    def register_sealed(self, times: int) -> Parcel:
        """Record so many events with a sealed field; its subject is as new as the parcel."""
        for _ in range(times):
            self.record(ParcelRegisteredSealed(self.id, self.recipient, NOTE))
        return self


NOTE = "left with the neighbour, who signed for it"

metadata = MetaData()
parcels = Table(
    "bench_parcels",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("recipient", Text, nullable=False),
    *aggregate_columns(),
)
map_aggregate(registry(), Parcel, parcels)

INSERT_PARCEL = "INSERT INTO bench_parcels (id, recipient, version, revision) VALUES ($1, $2, $3, 1)"
INSERT_EVENT = """
INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id,
                           aggregate_version, payload, occurred_at)
VALUES ($1, 'bench.parcel_registered', 1, 'bench.parcel', $2, $3, $4, $5)
"""

INSERT_EVENTS = """
INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id,
                           aggregate_version, payload, occurred_at)
SELECT event_id, 'bench.parcel_registered', 1, 'bench.parcel', aggregate_id, version, payload::jsonb, moment
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::timestamptz[])
  AS event (event_id, aggregate_id, version, payload, moment)
"""


def row_by_hand(parcel_id: UUID, number: int) -> tuple[Any, ...]:
    """Return what bare asyncpg inserts of an event."""
    event_id, moment = new_id(), now()
    payload = {
        "event_id": str(event_id),
        "occurred_at": moment.isoformat(),
        "parcel_id": str(parcel_id),
        "recipient": "Ada Lovelace",
        "note": NOTE,
    }
    return event_id, parcel_id, number, json.dumps(payload), moment
