"""What the writers of the rig change: counters, each step of which is an event; imported by their processes only."""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Column, MetaData, Table, Uuid
from sqlalchemy.orm import registry

from outbox_kernel.infrastructure.outbox import aggregate_columns, map_aggregate
from outbox_kernel.kernel import AggregateRoot, DomainEvent, aggregate, event, upcasts

# Old and new code of one application, side by side: a process knows this version of the event and those before.
VERSION = int(os.environ.get("FAULTS_EVENT_VERSION", "1"))


@event("faults.counted", version=VERSION)
class Counted(DomainEvent):
    """A counter has moved; the spell is for the handler that obeys it."""

    n: int
    spell: str = ""
    note: str = ""


if VERSION > 1:

    @upcasts("faults.counted", from_version=1)
    def _lift(payload: dict[str, Any]) -> dict[str, Any]:
        return {**payload, "note": "lifted"}


@aggregate("faults.counter")
class Counter(AggregateRoot):
    """An aggregate whose whole state is how often it has moved."""

    id: UUID
    n: int = 0

    def count(self, spell: str = "") -> None:
        """Move on."""
        self.n += 1
        self.record(Counted(self.n, spell))


counters = Table(
    "faults_counters",
    MetaData(),
    Column("id", Uuid, primary_key=True),
    Column("n", BigInteger, nullable=False),
    *aggregate_columns(),
)

map_aggregate(registry(), Counter, counters)
