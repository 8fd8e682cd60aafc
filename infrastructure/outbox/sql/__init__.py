"""Every SQL statement of the relay, a module per table group; `in_schema` names the tables.

Times are the server's: each statement takes `now`, null in production, so that only tests ever choose one.
"""

from __future__ import annotations

from functools import cache

from outbox_kernel.infrastructure.outbox.statements import qualified

_TABLES = (
    *("outbox_events", "outbox_deliveries", "outbox_receipts", "outbox_subscriptions", "outbox_relays"),
    *("outbox_cursors_past", "outbox_cursors", "outbox_progress", "outbox_servers", "outbox_cursor_places"),
    "outbox_status",
    "outbox_arrivals",
    "outbox_log",
    "outbox_subject_keys",
)


@cache
def in_schema(statement: str, schema: str | None) -> str:
    """Write the names of tables and views into a statement."""
    return statement.format(**{table: qualified(table, schema) for table in _TABLES})
