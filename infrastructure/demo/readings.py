"""What the demo asks the database; every figure it prints comes from here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen
from sqlalchemy import Table, and_, func, inspect, or_, select, text

from outbox_kernel.infrastructure.outbox.tables import outbox_events_in
from outbox_kernel.kernel import catalogue, masked_payload

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Subquery
    from sqlalchemy.ext.asyncio import AsyncConnection

EVENTS = "outbox_events"


@frozen
class Readings:
    """Queries over the outbox of one schema and the tables of some aggregates, by aggregate type."""

    events: Table
    aggregates: dict[str, Table]

    @classmethod
    def over(cls, packages: Iterable[str], schema: str | None) -> Readings:
        """Read the outbox, and every mapped aggregate that these packages define."""
        return cls(outbox_events_in(schema), dict(_mapped_aggregates(packages)))

    async def server(self, connection: AsyncConnection) -> str:
        """The server's version."""
        return str(await connection.scalar(text("SHOW server_version"))).split()[0]

    async def counts(self, connection: AsyncConnection) -> dict[str, int]:
        """How many rows each aggregate's table has, and the outbox."""
        tables = {**{table.name: table for table in self.aggregates.values()}, EVENTS: self.events}
        return {
            name: int(await connection.scalar(select(func.count()).select_from(table)) or 0)
            for name, table in tables.items()
        }

    async def newest_position(self, connection: AsyncConnection) -> int:
        """The highest position that is committed, 0 before the first."""
        return int(await connection.scalar(select(func.max(self.events.c.position))) or 0)

    async def events_after(self, connection: AsyncConnection, position: int) -> list[dict[str, Any]]:
        """The rows above a position, in order, with what is sensitive masked."""
        columns = (
            "position",
            "event_id",
            "event_type",
            "event_version",
            "aggregate_type",
            "aggregate_id",
            "aggregate_version",
            "occurred_at",
            "payload",
        )
        rows = await connection.execute(
            select(*(self.events.c[name] for name in columns))
            .where(self.events.c.position > position)
            .order_by(self.events.c.position)
        )
        return [
            {**row._mapping, "payload": masked_payload(row.event_type, row.payload)}  # noqa: SLF001 - its public name
            for row in rows
        ]

    async def streams_with_gaps(self, connection: AsyncConnection) -> int:
        """How many aggregates have events that are not numbered 1 to n."""
        streams = self._streams()
        broken = or_(streams.c.oldest != 1, streams.c.newest != streams.c.number)
        return int(await connection.scalar(select(func.count()).select_from(streams).where(broken)) or 0)

    async def rows_out_of_step(self, connection: AsyncConnection) -> int:
        """How many aggregates' rows count other events than the outbox holds for them."""
        streams, found = self._streams(), 0
        for name, table in self.aggregates.items():
            (key,) = table.primary_key.columns
            mine = and_(streams.c.aggregate_type == name, streams.c.aggregate_id == key)
            differs = func.coalesce(streams.c.newest, 0) != table.c.version
            joined = table.outerjoin(streams, mine)
            found += await connection.scalar(select(func.count()).select_from(joined).where(differs)) or 0
        return found

    def _streams(self) -> Subquery:
        events = self.events.c
        return (
            select(
                events.aggregate_type,
                events.aggregate_id,
                func.count().label("number"),
                func.min(events.aggregate_version).label("oldest"),
                func.max(events.aggregate_version).label("newest"),
            )
            .where(events.aggregate_version.is_not(None))
            .group_by(events.aggregate_type, events.aggregate_id)
            .subquery()
        )


def _mapped_aggregates(packages: Iterable[str]) -> Iterable[tuple[str, Table]]:
    prefixes = tuple(f"{package}." for package in packages)
    for name, cls in sorted(catalogue.definitions.aggregate_by_name.items()):
        mapper = inspect(cls, raiseerr=False)
        if mapper is not None and cls.__module__.startswith(prefixes):
            yield name, mapper.local_table
