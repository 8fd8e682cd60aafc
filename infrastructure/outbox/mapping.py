"""Mapping an aggregate: the columns that capture needs, and the lock that no writer can pass (C4, C6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Column, text

if TYPE_CHECKING:
    from sqlalchemy import Table
    from sqlalchemy.orm import Mapper, registry


def aggregate_columns() -> tuple[Column[Any], ...]:
    """Return the columns of every aggregate's table: `version` counts its events, `revision` its writes."""
    return (
        Column("version", BigInteger, nullable=False, server_default=text("0")),
        Column("revision", BigInteger, nullable=False, server_default=text("1")),
    )


def map_aggregate(
    mapper_registry: registry,
    cls: type[Any],
    table: Table,
    *,
    properties: dict[str, Any] | None = None,
    **options: Any,
) -> Mapper[Any]:
    """Map an aggregate imperatively, with the optimistic lock on `revision`.

    `version` moves only when an event is recorded, so it cannot see a writer who records none. `revision`
    moves with every write of the row and costs no RETURNING, which `xmin` as a version counter would.
    """
    mapped = {"_revision": table.c.revision, **(properties or {})}
    return mapper_registry.map_imperatively(
        cls, table, properties=mapped, version_id_col=table.c.revision, **options
    )
