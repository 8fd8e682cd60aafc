"""Every SQL statement of the outbox, a module per table group; `in_schema` names the tables.

`reading`, `progress`, `cursors`, `subscriptions`, `deliveries` and `leases` are the relay's, `arrivals` is the inbox's,
`retention` a purge's. `receipts` and `subject_keys` write with a change. `listing`, `searching`, `glance`, `series` and
`operations` are what operators ask. What several of them say, such as when an event is settled, is written once: in
`fragments`, `passing` and `standing`.

Where the schema is not said, a connection of ours finds it, and names them by `at_home` when it sends a statement.
Times are the server's: each statement takes `now`, null in production, so that only tests ever choose one.

`outbox` calls it, and so do `relay`, `inbox`, `operations` and `sample`; the dashboard never does.

It may import the kernel, and of `outbox` what a statement and a table's name are written with (`statements`). It sends
nothing itself.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from outbox_kernel.infrastructure.outbox.statements import qualified

_TABLES = (
    *("outbox_events", "outbox_deliveries", "outbox_receipts", "outbox_subscriptions", "outbox_relays"),
    *("outbox_cursors_past", "outbox_cursors", "outbox_progress", "outbox_servers", "outbox_cursor_places"),
    "outbox_status",
    "outbox_arrivals",
    "outbox_log",
    "outbox_subject_keys",
)


_PLACE = re.compile(r"\{(outbox_\w+)\}")


@cache
def in_schema(statement: str, schema: str | None) -> str:
    """Write the names of tables and views into a statement."""
    return statement.format(**{table: qualified(table, schema) for table in _TABLES})


@cache
def unplaced(statement: str) -> str:
    """Leave the names of tables and views to the connection that sends the statement."""
    return statement.format(**{table: f"{{{table}}}" for table in _TABLES})


@lru_cache(maxsize=1024)
def at_home(statement: str, home: str | None) -> str:
    """Write the names that were left into a statement."""
    return _PLACE.sub(lambda found: qualified(found[1], home), statement)
