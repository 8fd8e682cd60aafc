"""What is measured with: an event of the usual size, the aggregate that records it, and its handlers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence  # noqa: TC003 - a handler's annotations are read at run time
from datetime import datetime  # noqa: TC003 - the event is read at run time
from decimal import Decimal
from typing import ClassVar
from uuid import UUID, uuid4

import attrs
from sqlalchemy import Column, MetaData, Numeric, Table, Text, Uuid, insert
from sqlalchemy.orm import registry

from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork  # noqa: TC001 - the container reads it
from outbox_kernel.infrastructure.outbox import aggregate_columns, map_aggregate
from outbox_kernel.kernel import AggregateRoot, DomainEvent, aggregate, event, handles
from outbox_kernel.kernel.clock import now

EVENT_TYPE = "bench.parcel_weighed"
AGGREGATE_TYPE = "bench.weighed_parcel"
PAUSE_SECONDS = 0.02


@event(EVENT_TYPE)
class ParcelWeighed(DomainEvent):
    """A payload of the usual size, about 200 bytes, and of the usual types."""

    parcel: UUID
    at: datetime
    kilograms: Decimal
    note: str


@aggregate(AGGREGATE_TYPE)
class WeighedParcel(AggregateRoot):
    """An aggregate of the usual size: a key and a text."""

    id: UUID
    note: str

    def weigh(self) -> ParcelWeighed:
        """Record one event, and return it."""
        event = weighed(self.id)
        self.record(event)
        return event


def weighed(parcel_id: UUID) -> ParcelWeighed:
    """Make an event as the measurements store it."""
    return ParcelWeighed(parcel_id, now(), Decimal("12.50"), "at the back door")


def new_parcel() -> WeighedParcel:
    """Make an aggregate without an event."""
    return WeighedParcel(uuid4(), "at the back door")


bench_metadata = MetaData()
parcels = Table(
    "bench_weighed_parcels",
    bench_metadata,
    Column("id", Uuid, primary_key=True),
    Column("note", Text, nullable=False),
    *aggregate_columns(),
)
bookings = Table(
    "bench_bookings",
    bench_metadata,
    Column("event_id", Uuid, primary_key=True),
    Column("parcel_id", Uuid, nullable=False),
    Column("kilograms", Numeric, nullable=False),
)
map_aggregate(registry(), WeighedParcel, parcels)

_book = insert(bookings)


@handles(ParcelWeighed, name="bench.ignore")
class Ignore:
    """Does nothing: what is measured is the relay."""

    async def handle(self, _: ParcelWeighed) -> None:
        """Return."""


@handles(ParcelWeighed, name="bench.pause")
class Pause:
    """Waits as one waits for another service."""

    async def handle(self, _: ParcelWeighed) -> None:
        """Wait."""
        await asyncio.sleep(PAUSE_SECONDS)


@handles(ParcelWeighed, name="bench.note_start")
class NoteStart:
    """Notes when it began, by a clock that all processes of the machine share."""

    started_ns: ClassVar[dict[str, int]] = {}

    async def handle(self, event: ParcelWeighed) -> None:
        """Note it."""
        self.started_ns[str(event.event_id)] = time.monotonic_ns()


@handles(ParcelWeighed, name="bench.book")
@attrs.frozen
class Book:
    """Adds one row, which commits together with the receipt."""

    unit: SqlAlchemyUnitOfWork

    async def handle(self, event: ParcelWeighed) -> None:
        """Add it."""
        async with self.unit as unit:
            await unit.session.execute(_book, _row(event))
            await unit.commit()


BATCH = 200


@handles(ParcelWeighed, name="bench.book_batch", batch=BATCH)
@attrs.frozen
class BookBatch:
    """Adds a row for each of many events, which commit together with a receipt for each."""

    unit: SqlAlchemyUnitOfWork

    async def handle(self, events: Sequence[ParcelWeighed]) -> None:
        """Add them."""
        async with self.unit as unit:
            await unit.session.execute(_book, [_row(event) for event in events])
            await unit.commit()


def _row(event: ParcelWeighed) -> dict[str, object]:
    return {"event_id": event.event_id, "parcel_id": event.parcel, "kilograms": event.kilograms}
