"""The two columns of an aggregate that its table in the database has not: nobody has added them yet (C6)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.errors import SchemaNotMigrated
from outbox_kernel.infrastructure.outbox.conflicts import driver_error, sqlstate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy.exc import DBAPIError

_UNDEFINED_COLUMN = "42703"
COLUMNS = ("version", "revision")
_ADDED_BY = {
    "version": "ADD COLUMN IF NOT EXISTS version bigint NOT NULL DEFAULT 0",
    "revision": "ADD COLUMN IF NOT EXISTS revision bigint NOT NULL DEFAULT 1",
}

# The tables of the mapped aggregates, each by its name and as a statement would name it.
aggregate_tables: dict[str, str] = {}


def raise_forgotten_columns(error: DBAPIError) -> None:
    """Raise the sentence with the statements that add them, in place of an error that is about one of them."""
    if sqlstate(error) != _UNDEFINED_COLUMN:
        return
    # Names alone, since servers speak many languages. What a query calls `orders_1` is `orders`.
    words = re.findall(r"\w+", str(driver_error(error)).partition("\n")[0])
    columns = [each for each in words if each in COLUMNS]
    names = (name for word in words for name in (word, re.sub(r"_\d+$", "", word)))
    table = next((aggregate_tables[name] for name in names if name in aggregate_tables), None)
    if columns and table:
        raise SchemaNotMigrated(
            f"table {table} has no column {columns[0]!r} in the database, and an aggregate is mapped to it: "
            f"{statements_for(table)}"
        ) from error


def statements_for(table: str, columns: Iterable[str] = COLUMNS) -> str:
    """Say which statements add the columns to a table."""
    written = " and ".join(f"`ALTER TABLE {table} {_ADDED_BY[column]}`" for column in columns)
    return f"run {written}, or let your migrations do so"
