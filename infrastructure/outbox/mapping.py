"""Mapping an aggregate: the columns that capture needs, and the lock that no writer can pass (C4, C6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import attrs
from sqlalchemy import BigInteger, Column, TypeDecorator, inspect, text
from sqlalchemy.types import UserDefinedType

from outbox_kernel.infrastructure.errors import MappingRefused
from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.identity import bare_value

if TYPE_CHECKING:
    from sqlalchemy import Table
    from sqlalchemy.orm import Mapper, registry


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


def refused_without_confirmation(cls: type[Any]) -> MappingRefused:
    """Return the error for a mapping that does not ask what a deletion has found."""
    return MappingRefused(
        f"{cls.__name__} is mapped with confirm_deleted_rows=False, so that it could be deleted while another writer "
        "changes it; leave that option out"
    )


def refused_without_mapping(cls: type[Any]) -> MappingRefused:
    """Return the error for an aggregate of which no table is known."""
    return MappingRefused(
        f"{cls.__name__} is mapped to no table, so no session can load or store it; call "
        f"map_aggregate(registry, {cls.__name__}, table), or import the module that does so"
    )


def _refused_without_column(cls: type[Any], field: str, table: str) -> MappingRefused:
    return MappingRefused(
        f"{cls.__name__} has the field {field!r}, which its mapping does not store, so that every load would lose it; "
        f"give {table} a column {field!r}, or name in `properties` what stores it (a field that is not state "
        "should be none: functools.cached_property does for it)"
    )


def check_fields(cls: type[Any], table: str) -> None:
    """Refuse a field that no load would bring back: it would read as stale from then on."""
    # On the class attrs leaves nothing of a field; what answers there is the mapper's, or the application's.
    missing = [field.name for field in attrs.fields(cls) if not hasattr(cls, field.name)]
    if missing:
        raise _refused_without_column(cls, missing[0], table)


def aggregate_columns() -> tuple[Column[Any], ...]:
    """Return the columns of every aggregate's table: `version` counts its events, `revision` its writes."""
    return (
        Column("version", BigInteger, nullable=False, server_default=text("0")),
        Column("revision", BigInteger, nullable=False, server_default=text("1")),
    )


def map_aggregate(
    mapper_registry: registry,
    cls: type[Any],
    table: Table | None,
    *,
    properties: dict[str, Any] | None = None,
    **options: Any,
) -> Mapper[Any]:
    """Map an aggregate imperatively, with the optimistic lock on `revision`.

    `version` moves only when an event is recorded, so it cannot see a writer who records none. `revision`
    moves with every write of the row and costs no RETURNING, which `xmin` as a version counter would.

    A subclass takes both from the aggregate that it `inherits`; in one table with it, its own is None.
    """
    catalogue.aggregate_type_of(cls)
    if "inherits" not in options:
        options |= {"version_id_col": lock_of(cls, table)}
        properties = {"_revision": options["version_id_col"], **(properties or {})}
    mapper = mapper_registry.map_imperatively(cls, table, properties=properties or {}, **options)
    check_fields(cls, table_name(mapper))
    return mapper


def table_name(mapper: Mapper[Any]) -> str:
    """Name the table of a mapping as a statement would."""
    return name_of(mapper.local_table)


def give_order(mapper: Mapper[Any]) -> None:
    """Let a flush sort rows by keys that have no order of their own, as value objects mostly have none."""
    for column in mapper.primary_key:
        kind = column.type
        if kind.sort_key_function is None and isinstance(kind, TypeDecorator):
            kind.impl_instance.sort_key_function = _in_order
        elif kind.sort_key_function is None and isinstance(kind, UserDefinedType):
            kind.sort_key_function = _in_order


def _in_order(key: object) -> Any:
    value = bare_value(key)
    return value if isinstance(value, UUID | int | str) else repr(value)


def row_key(cls: type[Any], identity: object) -> object:
    """Return what finds a row of the class: its id, or what that holds where the mapper composes it of columns."""
    mapper = inspect(cls, raiseerr=False)
    if mapper is None:
        raise refused_without_mapping(cls)
    return bare_value(identity) if "id" in mapper.composites else identity


def lock_of(cls: type[Any], table: Any) -> Column[Any]:
    """Return the column of the optimistic lock, or refuse a table without the two columns."""
    if table is None:
        raise MappingRefused(
            f"{cls.__name__} has no table of its own, so say whose it shares with `inherits=`"
        )
    if "version" not in table.c:
        raise refused_without_version(cls, name_of(table))
    if "revision" not in table.c:
        raise refused_without_lock(cls, name_of(table))
    return table.c.revision  # type: ignore[no-any-return]  # the table may be any selectable


def name_of(table: Any) -> str:
    """Name a table as a statement would."""
    return getattr(table, "fullname", str(table))
