"""Doctor's look at the application's aggregates: whether their tables have what their mappings say (C6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.dialects import postgresql

from outbox_kernel.infrastructure.operations.verdicts import Check, fail, ok
from outbox_kernel.infrastructure.outbox.instrument import mapped_tables
from outbox_kernel.infrastructure.outbox.mapping import name_of
from outbox_kernel.infrastructure.outbox.sql.inspection import COLUMNS_OF_TABLE
from outbox_kernel.infrastructure.outbox.table_columns import COLUMNS, statements_for

if TYPE_CHECKING:
    from sqlalchemy import Table

    from outbox_kernel.infrastructure.operations.desk import Desk

_QUOTED = postgresql.dialect().identifier_preparer  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped


async def examine_aggregates(desk: Desk) -> list[Check]:
    """Check the tables of the mapped aggregates that are in this database; where there is none, nothing."""
    checks = [check for table in mapped_tables() if (check := await _examined(desk, table)) is not None]
    failed = [check for check in checks if check.state == "fail"]
    return failed or checks[:1]


async def _examined(desk: Desk, table: Table) -> Check | None:
    present = {
        row["name"] for row in await desk.run(COLUMNS_OF_TABLE, table_name=_QUOTED.format_table(table))
    }
    if not present:
        return None  # it is of another database, or yet to be made
    missing = [column for column in COLUMNS if column in table.c and column not in present]
    if missing:
        detail = f"table {name_of(table)} has no column {' and no column '.join(map(repr, missing))}"
        return fail("aggregates", detail, statements_for(name_of(table), missing))
    return ok("aggregates", "their tables have `version` and `revision`")
