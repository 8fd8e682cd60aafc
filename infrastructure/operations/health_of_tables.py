"""Doctor's look at the tables: what the server cannot clean away, and who keeps it from that (R13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.operations.limits import DEAD_ROWS_MIN, TRANSACTION_SECONDS_MAX
from outbox_kernel.infrastructure.operations.verdicts import Check, ok, seconds, warn
from outbox_kernel.infrastructure.outbox.sql.inspection import BLOAT, OLDEST_TRANSACTION

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.operations.desk import Desk


async def examine_tables(desk: Desk) -> list[Check]:
    """Check for dead rows, and for the transaction that keeps them."""
    return [await _oldest_transaction(desk), await _bloat(desk)]


async def _bloat(desk: Desk) -> Check:
    tables = await desk.run(BLOAT)
    worst = max(tables, key=lambda row: row["dead_rows"], default=None)
    if worst is None:
        return ok("bloat", "no statistics yet")
    vacuumed = worst["vacuumed_at"]
    when = f"last vacuumed {vacuumed:%Y-%m-%d %H:%M}" if vacuumed else "never vacuumed"
    detail = (
        f"{worst['table_name']} has {worst['dead_rows']} dead rows beside {worst['live_rows']} live, {when}"
    )
    if worst["dead_rows"] > max(DEAD_ROWS_MIN, worst["live_rows"]):
        remedy = f"end the oldest transaction if it is old, then VACUUM {worst['table_name']}"
        return warn("bloat", detail, remedy)
    return ok("bloat", detail)


async def _oldest_transaction(desk: Desk) -> Check:
    for row in await desk.run(OLDEST_TRANSACTION):
        if row["seconds"] is None:
            detail = f"{row['what']}, whose times this user may not see (GRANT pg_read_all_stats)"
            return ok("oldest transaction", detail)
        detail = f"{row['what']} for {seconds(row['seconds'])}"
        if row["seconds"] > TRANSACTION_SECONDS_MAX:
            remedy = f"let it end, or {row['ending']}: until then no dead row goes"
            return warn("oldest transaction", detail, remedy)
        return ok("oldest transaction", detail)
    return ok("oldest transaction", "none")
