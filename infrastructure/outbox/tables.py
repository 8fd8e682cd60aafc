"""The outbox's table as the code sees it; the migrations, which are frozen, are what makes it.

Few constraints and indexes, since each costs every writer: the key that orders, the key that names, the
key that keeps an aggregate's stream without forks, and one index by which what committed late is found.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from outbox_kernel.infrastructure.outbox.server_types import TransactionId

# Names that errors are recognised by.
EVENT_ID_KEY = "outbox_events_event_id_key"
AGGREGATE_STREAM_KEY = "outbox_events_aggregate_stream_key"
QUEUES_STREAM_KEY = "outbox_events_queues_stream_key"

# PostgreSQL's own habits, so that nobody who knows psql is surprised.
NAMING_CONVENTION = {
    "pk": "%(table_name)s_pkey",
    "uq": "%(table_name)s_%(column_0_N_name)s_key",
    "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    "ck": "%(table_name)s_%(constraint_name)s_check",
    "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
}

outbox_metadata: MetaData = MetaData(naming_convention=NAMING_CONVENTION)


def moment(name: str, comment: str, **options: Any) -> Column[Any]:
    """Return a column of points in time."""
    return Column(name, DateTime(timezone=True), comment=comment, **options)


def clock() -> Any:
    """Return the default of a time that is compared with the clock."""
    # Not now(): that is the transaction's start, and leases compare these times with the clock.
    return text("clock_timestamp()")


# The order of the columns is the row's layout. Those of fixed width come first, the widest before the others,
# so that little is lost to alignment (8 bytes of 340 otherwise); what is mostly null comes last.
outbox_events = Table(
    "outbox_events",
    outbox_metadata,
    # ALWAYS: a position is given by the sequence or it orders nothing. A dump restores it all the same.
    Column("position", BigInteger, Identity(always=True), primary_key=True, comment="order of insertion"),
    Column(
        "xid",
        TransactionId,
        nullable=False,
        server_default=text("pg_current_xact_id()"),
        comment="the transaction that wrote it",
    ),
    Column("event_id", Uuid, nullable=False, comment="the event's own id, a UUIDv7"),
    moment("occurred_at", "when it happened, by the application's clock", nullable=False),
    moment("created_at", "when the row was written", nullable=False, server_default=clock()),
    Column("event_version", Integer, nullable=False, comment="schema version of the payload"),
    Column("event_type", Text, nullable=False, comment="stable wire name of the event"),
    Column("aggregate_type", Text, comment="wire name of the aggregate, if it is one's event"),
    Column("aggregate_id", Uuid, comment="id of the aggregate"),
    Column("aggregate_version", BigInteger, comment="n for the n-th event of the aggregate, without gaps"),
    Column("payload", JSONB, nullable=False, comment="the event's fields, nothing else"),
    Column(
        "headers",
        JSONB,
        nullable=False,
        server_default=text("'{}'"),
        comment="context: who, which request, caused by what",
    ),
    moment("not_before", "it is handled from then on, outside its aggregate's order"),
    Column("aggregate_key", Text, comment="id of the aggregate as written, where that is no UUID"),
    Column("source", Text, comment="the queue that brought it; null: written here"),
    Column(
        "sensitive",
        JSONB(none_as_null=True),
        comment="the payload's fields that nobody is shown, * for each of them; null: none",
    ),
    # What orders and dates an event is the server's. Whoever may write it all the same writes what readers can count
    # with.
    CheckConstraint("position BETWEEN 1 AND 4611686018427387904", name="position"),
    CheckConstraint(
        "created_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'", name="created_at"
    ),
    UniqueConstraint("event_id", name=EVENT_ID_KEY),
    # Of what is written here, and of what each queue brings, apart: nobody who sends a message takes a number from a
    # writer of ours.
    Index(
        AGGREGATE_STREAM_KEY,
        *("aggregate_type", "aggregate_id", "aggregate_version"),
        unique=True,
        postgresql_where=text("source IS NULL"),
    ),
    Index(
        QUEUES_STREAM_KEY,
        *("aggregate_type", "aggregate_id", "aggregate_version", "source"),
        unique=True,
        postgresql_where=text("source IS NOT NULL"),
    ),
    Index("outbox_events_xid_position_idx", "xid", "position"),
    # Of what handlers have recorded alone: what an event has caused is found by it. No longer than an entry may be.
    Index(
        "outbox_events_causation_idx",
        text("\"left\"(headers ->> 'causation_id'::text, 64)"),
        postgresql_where=text("headers ? 'causation_id'::text"),
    ),
    comment="Domain events, written in the transaction of their change; never updated.",
)


# A view, so that it is none of the tables that are made: `views` makes it.
_status = Table(
    "outbox_status",
    MetaData(),
    Column("event_id", Uuid, primary_key=True),
    Column("status", Text, nullable=False),
    Column("retry_count", Integer, nullable=False),
    moment("processed_at", "when its outcome was final"),
    Column("error_message", Text),
    Column("log_position", BigInteger, nullable=False),
)


@cache
def status_in(schema: str | None = None) -> Table:
    """Give the view of what became of each event, as it stands in a schema, or where the search path points."""
    return _status if schema is None else _status.to_metadata(MetaData(), schema=schema)


@cache
def outbox_events_in(schema: str | None = None) -> Table:
    """Give the table as it stands in a schema, or where the search path points."""
    if schema is None:
        return outbox_events
    return outbox_events.to_metadata(MetaData(naming_convention=NAMING_CONVENTION), schema=schema)
