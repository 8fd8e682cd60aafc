"""Where each subscription stands in the log, as the code sees it; the migrations are what makes these tables."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Identity, Index, Integer, Table, Text, Uuid, text

from outbox_kernel.infrastructure.outbox.server_types import PgSnapshot
from outbox_kernel.infrastructure.outbox.tables import clock, moment, outbox_metadata

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
    Column("events", Integer, nullable=False, server_default=text("0"), comment="passed since the last"),
    Column("snapshot", PgSnapshot, nullable=False, comment="which transactions' events are passed"),
    # By it the views find when a reader passed an event.
    Index("outbox_progress_position", "reader", "position", "number"),
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
    comment="With which readers cursors went before: the moments at which they passed an event.",
)
