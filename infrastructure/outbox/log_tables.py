"""Where each subscription stands in the log, and what stands there once more for a queue; as migrations make it."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from outbox_kernel.infrastructure.outbox.server_types import PgSnapshot, TransactionId
from outbox_kernel.infrastructure.outbox.tables import clock, moment, outbox_metadata

# Names that an error is recognised by.
ARRIVALS_KEY = "outbox_arrivals_event_id_source_key"
ARRIVALS_EVENT_KEY = "outbox_arrivals_event_id_fkey"

outbox_arrivals = Table(
    "outbox_arrivals",
    outbox_metadata,
    Column(
        "position",
        BigInteger,
        primary_key=True,
        autoincrement=False,
        comment="where it stands for that queue, in the order of the log",
    ),
    Column(
        "xid",
        TransactionId,
        nullable=False,
        server_default=text("pg_current_xact_id()"),
        comment="the transaction that wrote it",
    ),
    # A purge may be about to delete the event when it is brought again, and neither sees what the other writes. Either
    # the event stays, or who stores it is told that it has gone.
    Column(
        "event_id",
        Uuid,
        ForeignKey("outbox_events.event_id", name=ARRIVALS_EVENT_KEY),
        nullable=False,
        comment="the event, which was there",
    ),
    moment("created_at", "when the row was written", nullable=False, server_default=clock()),
    Column("aggregate_id", Uuid, comment="id of its aggregate"),
    Column("event_type", Text, nullable=False, comment="stable wire name of the event"),
    Column("source", Text, nullable=False, comment="the queue that brought it"),
    UniqueConstraint("event_id", "source", name=ARRIVALS_KEY),
    Index("outbox_arrivals_xid_position_idx", "xid", "position"),
    comment="Events that were in the log already when a queue brought them: where they stand for its handlers.",
)

outbox_servers = Table(
    "outbox_servers",
    outbox_metadata,
    Column("number", Integer, Identity(always=True), primary_key=True, comment="by which progress names it"),
    Column("identifier", Text, nullable=False, comment="the server's system_identifier"),
    Column("floor", BigInteger, nullable=False, comment="position at or below which nothing can be late"),
    moment("since", "when it was first found", nullable=False, server_default=clock()),
    comment="By whose transaction ids places count: a restored or copied outbox has had several servers.",
)

outbox_progress = Table(
    "outbox_progress",
    outbox_metadata,
    Column("reader", Uuid, primary_key=True, comment="whose place it is"),
    Column("number", BigInteger, primary_key=True, autoincrement=False, comment="the newest counts"),
    Column("position", BigInteger, nullable=False, comment="up to here all that the snapshot saw is passed"),
    moment("recorded_at", "when", nullable=False, server_default=clock()),
    Column("server", Integer, nullable=False, comment="by whose transaction ids the snapshot counts"),
    # A running total: the difference of any two rows is what was passed in between, whatever has gone meanwhile.
    Column(
        "events", BigInteger, nullable=False, server_default=text("0"), comment="passed by this reader so far"
    ),
    Column("snapshot", PgSnapshot, nullable=False, comment="which transactions' events are passed"),
    Column("late_position", BigInteger, comment="up to here late_snapshot counts, too; null: nowhere"),
    Column("late_snapshot", PgSnapshot, comment="by which what was late is read, a batch at a time"),
    # By it the views find when a reader passed an event.
    Index("outbox_progress_position", "reader", "position", "number"),
    # By it the dashboard finds where a reader stood at a moment.
    Index("outbox_progress_recorded", "reader", "recorded_at"),
    comment="Where readers stood in the log, a row each time it was written down; never updated.",
)

outbox_cursors = Table(
    "outbox_cursors",
    outbox_metadata,
    Column("subscription", Text, primary_key=True, comment="whose"),
    Column("shard", Integer, primary_key=True, autoincrement=False, comment="of which aggregates"),
    Column("reader", Uuid, nullable=False, comment="its place is this reader's newest progress"),
    Column(
        "first_number",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="progress of the reader from which on it is this cursor's, too",
    ),
    Column("lease_relay", Uuid, comment="relay that owns it"),
    Column("lease_epoch", BigInteger, comment="epoch of that relay's lease"),
    Column(
        "takeovers",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="how many relays have vanished over it since it last moved",
    ),
    Column("rewind_to", BigInteger, comment="its owner is to go back to this position"),
    Index("outbox_cursors_lease", "lease_relay"),
    Index("outbox_cursors_reader", "reader"),
    comment="Who reads the log for whom: a row for each subscription and shard.",
)

outbox_cursors_past = Table(
    "outbox_cursors_past",
    outbox_metadata,
    Column("subscription", Text, nullable=False, comment="whose"),
    Column("shard", Integer, nullable=False, comment="of which aggregates"),
    Column("reader", Uuid, nullable=False, comment="with which it went"),
    Column("first_number", BigInteger, nullable=False, comment="from this progress on"),
    Column("last_number", BigInteger, nullable=False, comment="up to this"),
    moment("until", "when it changed", nullable=False, server_default=clock()),
    Index("outbox_cursors_past_idx", "subscription", "shard", "until"),
    Index("outbox_cursors_past_reader", "reader"),
    comment="With which readers cursors went before: the moments at which they passed an event.",
)
