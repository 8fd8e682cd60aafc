"""Mapping an aggregate: the columns that capture needs, and the lock that no writer can pass (C4, C6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Column, text

from infrastructure.errors import InfrastructureError

if TYPE_CHECKING:
    from sqlalchemy import Table
    from sqlalchemy.orm import Mapper, registry


class MappingRefused(InfrastructureError, TypeError):
    """An aggregate is mapped without a column that capture needs; the sentence has the remedy's SQL."""


def refused_without_version(cls: type[Any], table: str) -> MappingRefused:
    """Return the error for a mapping that cannot number the aggregate's events."""
    return MappingRefused(
        f"{cls.__name__} is mapped without an integer `version`, which numbers its events; run "
        f"`ALTER TABLE {table} ADD COLUMN version bigint NOT NULL DEFAULT 0` and map the column"
    )


def refused_without_lock(cls: type[Any], table: str) -> MappingRefused:
    """Return the error for a mapping that lets two writers overwrite each other."""
    return MappingRefused(
        f"{cls.__name__} is mapped without a lock of its own, so that two writers could overwrite "
        f"each other; run `ALTER TABLE {table} ADD COLUMN revision bigint NOT NULL DEFAULT 1` and map it with "
        "version_id_col=table.c.revision"
    )


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
    if "version" not in table.c:
        raise refused_without_version(cls, table.fullname)
    if "revision" not in table.c:
        raise refused_without_lock(cls, table.fullname)
    mapped = {"_revision": table.c.revision, **(properties or {})}
    return mapper_registry.map_imperatively(
        cls, table, properties=mapped, version_id_col=table.c.revision, **options
    )
