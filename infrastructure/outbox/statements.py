"""Every SQL statement on the outbox that capture and the migrations send, by name."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from outbox_kernel.infrastructure.outbox.tables import status_in

if TYPE_CHECKING:
    from sqlalchemy import Select

_COLUMNS = """event_id, event_type, event_version, aggregate_type, aggregate_id,
                      aggregate_version, payload, occurred_at, aggregate_key, not_before, sensitive"""

# Most flushes hold one event, and for one this is a tenth of a commit cheaper than the arrays below.
_INSERT_EVENT = """
INSERT INTO {events} ({columns}, headers)
VALUES ($1, $2, $3, $4, $5, $6, $7::text::jsonb, $8, $9, $10, $11::text::jsonb,
        $12::text::jsonb)
"""

# One text for two events and for a thousand: prepared once per connection, one round trip per flush.
# Rows get their positions in the order of the arrays; headers are the same for a whole flush.
_INSERT_EVENTS = """
INSERT INTO {events} ({columns}, headers)
SELECT event_id, event_type, event_version, aggregate_type, aggregate_id,
       aggregate_version, payload::jsonb, occurred_at, aggregate_key, not_before, sensitive::jsonb, $12::text::jsonb
FROM unnest($1::uuid[], $2::text[], $3::int[], $4::text[], $5::uuid[],
            $6::bigint[], $7::text[], $8::timestamptz[], $9::text[], $10::timestamptz[], $11::text[])
  AS event ({columns})
"""


@cache
def insert_event(schema: str | None) -> str:
    """Return the insert of one event, as twelve parameters: an envelope and the headers' JSON."""
    return _INSERT_EVENT.format(events=qualified("outbox_events", schema), columns=_COLUMNS)


@cache
def insert_events(schema: str | None) -> str:
    """Return the insert of one flush's events, as twelve parameters: an envelope's columns as arrays, the headers."""
    return _INSERT_EVENTS.format(events=qualified("outbox_events", schema), columns=_COLUMNS)


IS_READ_ONLY = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean"

# For a transaction that is rolled back: nobody ever sees it.
_INSERT_PROBE = """
INSERT INTO {events} (event_id, event_type, event_version, payload, headers, occurred_at)
VALUES (gen_random_uuid(), 'outbox.probe', 1, '{{}}', '{{}}', clock_timestamp())
"""


@cache
def insert_probe(schema: str | None) -> str:
    """Return the insert of an event that is no one's, to see whether one can be inserted."""
    return _INSERT_PROBE.format(events=qualified("outbox_events", schema))


# By the index of the streams' key. What was emitted into a stream has no number, and takes no id; nor does what a queue
# has brought.
# By LATERAL with a LIMIT, which no planner turns into a join: a connection keeps the plan that it has made while the
# outbox was empty, and would read all of the type's events ever after.
_FIND_LIVED = """
SELECT born.id
FROM unnest($2::uuid[]) AS born (id),
     LATERAL (SELECT FROM {events}
              WHERE aggregate_type = $1 AND aggregate_id = born.id AND aggregate_version > 0 AND source IS NULL
              LIMIT 1) AS lived
LIMIT 1
"""


@cache
def find_lived(schema: str | None) -> str:
    """Return the query for an id of these under which an aggregate of the type has recorded events already."""
    return _FIND_LIVED.format(events=qualified("outbox_events", schema))


@cache
def as_psycopg_writes(statement: str) -> str:
    """Return a statement of ours, which are written for asyncpg, with each parameter $n as psycopg's %(pn)s."""
    return re.sub(r"\$(\d+)", r"%(p\1)s", statement.replace("%", "%%"))


def count_undelivered(schema: str | None) -> Select[Any]:
    """Return the count of the events that are not delivered, which a way down would lose."""
    status = status_in(schema)
    return select(func.count()).select_from(status).where(status.c.status != "delivered")


def qualified(table: str, schema: str | None) -> str:
    """Return a table's name with its schema, where one is set."""
    # SQLAlchemy's map of schemas may hold any name.
    return '"{}".{}'.format(schema.replace('"', '""'), table) if schema else table
