"""One row of the outbox as a plain object, for those who read the outbox through the ORM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import case, inspect
from sqlalchemy.exc import NoInspectionAvailable
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import registry

from infrastructure.errors import AlreadyMapped
from infrastructure.outbox.tables import outbox_events_in

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy.sql import ColumnElement

_registry = registry()


class OutboxRecord:
    """A row of `outbox_events`; `map_outbox_table()` once, then query it like any mapped class.

    A new record needs what the event says. What the server gives (position, times, status) is there
    after `await session.refresh(record)`.
    """

    position: int
    event_id: UUID
    occurred_at: datetime
    created_at: datetime
    available_at: datetime
    updated_at: datetime
    event_version: int
    retry_count: int
    takeovers: int
    status: str
    event_type: str
    aggregate_type: str | None
    aggregate_id: UUID | None
    aggregate_version: int | None
    payload: dict[str, Any]
    headers: dict[str, Any]
    lease_relay: UUID | None
    lease_epoch: int | None
    processed_at: datetime | None
    error_message: str | None

    def __init__(  # noqa: PLR0913 - the columns of an event, each by its name
        self,
        *,
        event_id: UUID,
        event_type: str,
        event_version: int,
        occurred_at: datetime,
        payload: dict[str, Any],
        headers: dict[str, Any] | None = None,
        aggregate_type: str | None = None,
        aggregate_id: UUID | None = None,
        aggregate_version: int | None = None,
    ) -> None:
        self.event_id = event_id
        self.event_type = event_type
        self.event_version = event_version
        self.occurred_at = occurred_at
        self.payload = payload
        self.headers = headers or {}
        self.aggregate_type = aggregate_type
        self.aggregate_id = aggregate_id
        self.aggregate_version = aggregate_version

    @hybrid_property
    def delivered(self) -> bool:
        """Whether every handler and publisher due for it has succeeded or was skipped."""
        return self.status == "delivered"

    @hybrid_property
    def delivered_at(self) -> datetime | None:
        """When that was so."""
        return self.processed_at if self.status == "delivered" else None

    @delivered_at.inplace.expression
    @classmethod
    def _delivered_at(cls) -> ColumnElement[datetime | None]:
        return case((cls.status == "delivered", cls.processed_at))  # type: ignore[arg-type]  # columns, once mapped

    def __repr__(self) -> str:
        """Name the event and how it stands; the payload may hold secrets."""
        return f"<OutboxRecord {self.event_type} {self.event_id}>"


def map_outbox_table(schema: str | None = None) -> type[OutboxRecord]:
    """Map `OutboxRecord` to the table in the given schema; again, or without one afterwards, is no harm."""
    table = outbox_events_in(schema)
    try:
        mapped = inspect(OutboxRecord)
    except NoInspectionAvailable:
        # By event_id, which the writer knows: a key that the server gives would have to be asked for on every
        # insert. The server's defaults are not asked for either.
        _registry.map_imperatively(OutboxRecord, table, primary_key=[table.c.event_id], eager_defaults=False)
        return OutboxRecord
    if schema is not None and mapped.local_table is not table:
        raise AlreadyMapped(
            f"OutboxRecord is mapped to {mapped.local_table} and cannot be mapped to {table} as well: "
            "call map_outbox_table with one schema per process"
        )
    return OutboxRecord
