"""The outbox's table as the code sees it; the migrations, which are frozen, are what makes it.

Few constraints and indexes, since each costs every writer: the key that orders, the key that names, the
key that keeps an aggregate's stream without forks, and one small index of what is left to do.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import (
    BigInteger,
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
    event,
    text,
)
from sqlalchemy.dialects.postgresql import DOMAIN, JSONB

from outbox_kernel.infrastructure.outbox.server_types import TransactionId

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

EVENT_STATES = ("pending", "leased", "open", "delivered", "dead")

# Names that errors are recognised by.
EVENT_ID_KEY = "outbox_events_event_id_key"
AGGREGATE_STREAM_KEY = "outbox_events_aggregate_stream_key"

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


class EventStatus(DOMAIN):
    """The type of an event's status: one of five words.

    Not a CHECK of the table, which PostgreSQL plans anew for each INSERT: that is a hundredth of a commit.
    """

    # SQLAlchemy 2.1 asks each type which operators it knows, and its own domains do not say.
    operator_classes: ClassVar[Any] = getattr(Text, "operator_classes", None)


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
    moment("available_at", "not before this time is it claimed", nullable=False, server_default=clock()),
    moment("updated_at", "when the row last changed", nullable=False, server_default=clock()),
    Column("event_version", Integer, nullable=False, comment="schema version of the payload"),
    Column(
        "retry_count",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="highest number of failed attempts among its handlers",
    ),
    Column(
        "takeovers",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="how often a relay took it over from one that vanished",
    ),
    Column(
        "status",
        EventStatus(
            "outbox_event_status",
            Text,
            constraint_name="outbox_events_status_check",
            check="VALUE IN ('pending', 'leased', 'open', 'delivered', 'dead')",
        ),
        nullable=False,
        server_default=text("'pending'"),
        comment="pending, leased, open (some handler unsettled), delivered or dead",
    ),
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
    Column("lease_relay", Uuid, comment="relay that holds it now"),
    Column("lease_epoch", BigInteger, comment="epoch of that relay's lease"),
    moment("processed_at", "when its outcome was final"),
    moment("not_before", "it is handled from then on, outside its aggregate's order"),
    Column("error_message", Text, comment="newest error, null once delivered"),
    Column("aggregate_key", Text, comment="id of the aggregate as written, where that is no UUID"),
    Column("source", Text, comment="the queue that brought it; null: written here"),
    UniqueConstraint("event_id", name=EVENT_ID_KEY),
    UniqueConstraint("aggregate_type", "aggregate_id", "aggregate_version", name=AGGREGATE_STREAM_KEY),
    Index("outbox_events_xid_position_idx", "xid", "position"),
    Index("outbox_events_open", "position", postgresql_where=text("status IN ('pending', 'leased')")),
    comment="Domain events, written in the transaction of their change; the relay delivers them.",
)


def _create_view(table: Table, connection: Connection, **_: object) -> None:
    """Complete `create_all` with the view for readers who know only what is delivered."""
    quote = connection.dialect.identifier_preparer
    name = f"{quote.quote_schema(table.schema)}.outbox" if table.schema else "outbox"
    connection.execute(
        text(f"""
        CREATE VIEW {name} AS
        SELECT event_id AS id, event_type, payload, occurred_at,
               status = 'delivered' AS delivered,
               CASE WHEN status = 'delivered' THEN processed_at END AS delivered_at,
               retry_count
        FROM {quote.format_table(table)}
        """)  # noqa: S608 - the names are quoted
    )
    connection.execute(
        text(f"COMMENT ON VIEW {name} IS 'The outbox for readers who ask only what is delivered.'")
    )


def _drop_view(table: Table, connection: Connection, **_: object) -> None:
    quote = connection.dialect.identifier_preparer
    name = f"{quote.quote_schema(table.schema)}.outbox" if table.schema else "outbox"
    connection.execute(text(f"DROP VIEW IF EXISTS {name}"))


def _with_view(table: Table) -> Table:
    event.listen(table, "after_create", _create_view)
    event.listen(table, "before_drop", _drop_view)
    return table


_with_view(outbox_events)


@cache
def outbox_events_in(schema: str | None = None) -> Table:
    """Give the table as it stands in a schema, or where the search path points."""
    if schema is None:
        return outbox_events
    return _with_view(outbox_events.to_metadata(MetaData(naming_convention=NAMING_CONVENTION), schema=schema))
