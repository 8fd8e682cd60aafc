"""One row of the outbox as a plain object, for those who read the outbox through the ORM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import case, event, inspect, select
from sqlalchemy.exc import NoInspectionAvailable
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import column_property, registry

from outbox_kernel.infrastructure.errors import AlreadyMapped
from outbox_kernel.infrastructure.outbox.sealing.records import seal_record
from outbox_kernel.infrastructure.outbox.tables import outbox_events_in, status_in
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Table
    from sqlalchemy.orm import ColumnProperty, Mapped
    from sqlalchemy.sql import ColumnElement

_registry = registry()


class OutboxRecord:
    """A row of `outbox_events`; `map_outbox_table()` once, then query it like any mapped class.

    A new record needs what the event says. What the server gives beyond the position (times, and what became of it) is
    there after `await session.refresh(record)`.
    """

    position: Mapped[int]
    xid: Mapped[int]
    event_id: Mapped[UUID]
    occurred_at: Mapped[datetime]
    created_at: Mapped[datetime]
    event_version: Mapped[int]
    event_type: Mapped[str]
    aggregate_type: Mapped[str | None]
    aggregate_id: Mapped[UUID | None]
    aggregate_version: Mapped[int | None]
    payload: Mapped[dict[str, Any]]
    headers: Mapped[dict[str, Any]]
    not_before: Mapped[datetime | None]
    aggregate_key: Mapped[str | None]
    source: Mapped[str | None]
    sensitive: Mapped[list[str] | None]
    # From the view of what became of it.
    status: Mapped[str]
    retry_count: Mapped[int]
    processed_at: Mapped[datetime | None]
    error_message: Mapped[str | None]

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
        aggregate_key: str | None = None,
        not_before: datetime | None = None,
        sensitive: list[str] | None = None,
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
        self.aggregate_key = aggregate_key
        self.not_before = not_before
        self.sensitive = sensitive

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
        return case((cls.status == "delivered", cls.processed_at))

    def __repr__(self) -> str:
        """Name the event only; the payload may hold secrets."""
        return f"<OutboxRecord {self.event_type} {self.event_id}>"


def map_outbox_table(schema: str | None = None) -> type[OutboxRecord]:
    """Map `OutboxRecord` to the outbox in `schema`; again, or without one afterwards, is no harm.

    Without a schema it is OUTBOX_SCHEMA of the environment, else where the search path points.
    """
    home = schema or Settings.from_environment().outbox_schema
    table = outbox_events_in(home)
    try:
        mapped = inspect(OutboxRecord)
    except NoInspectionAvailable:
        # By event_id, which the writer knows. Of what the server gives, an insert asks for the position only.
        _registry.map_imperatively(
            OutboxRecord,
            table,
            primary_key=[table.c.event_id],
            eager_defaults=False,
            properties=_what_became_of_it(table, status_in(home)),
        )
        event.listen(OutboxRecord, "before_insert", seal_record)
        return OutboxRecord
    if schema is not None and mapped.local_table is not table:
        raise AlreadyMapped(
            f"OutboxRecord is mapped to {mapped.local_table} and cannot be mapped to {table} as well: "
            "call map_outbox_table with one schema per process"
        )
    return OutboxRecord


def _what_became_of_it(events: Table, status: Table) -> dict[str, ColumnProperty[Any]]:
    return {
        column.name: column_property(
            select(column).where(status.c.event_id == events.c.event_id).correlate(events).scalar_subquery()
        )
        for column in status.c
        if column.name not in ("event_id", "log_position")
    }
