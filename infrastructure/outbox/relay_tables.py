"""The relays' tables as the code sees them; the migrations, which are frozen, are what makes them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    Index,
    Integer,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from outbox_kernel.infrastructure.outbox.key_table import outbox_subject_keys
from outbox_kernel.infrastructure.outbox.log_tables import (
    outbox_arrivals,
    outbox_cursors,
    outbox_cursors_past,
    outbox_progress,
    outbox_servers,
)
from outbox_kernel.infrastructure.outbox.tables import clock, moment, outbox_events_in, outbox_metadata
from outbox_kernel.infrastructure.outbox.views import with_log_views

if TYPE_CHECKING:
    from sqlalchemy import MetaData

# The first line; whatever has a digit in it, behind the name of the error's class, is three dots. As the server writes
# it.
ERROR_KIND = (
    """"left"(regexp_replace("left"(split_part(COALESCE(error_message, ''::text), chr(10), 1), 300), """
    "'(?<!^)[[:<:]][[:alnum:]_-]*[0-9][[:alnum:]_-]*'::text, '*'::text, 'g'::text), 200)"
)

outbox_deliveries = Table(
    "outbox_deliveries",
    outbox_metadata,
    Column("event_id", Uuid, primary_key=True, comment="the event"),
    Column(
        "position",
        BigInteger,
        nullable=False,
        comment="where the event stands in the log for this handler",
    ),
    moment("created_at", "when the row was written", nullable=False, server_default=clock()),
    moment("available_at", "not before this time does it run", nullable=False, server_default=clock()),
    moment("updated_at", "when the row last changed", nullable=False, server_default=clock()),
    Column("attempts", Integer, nullable=False, server_default=text("0"), comment="failures so far"),
    Column(
        "takeovers",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="how often it was found unfinished by a relay that vanished",
    ),
    Column(
        "alone",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="runs while nothing else does: a relay that vanishes meanwhile was killed by it",
    ),
    Column("handler", Text, primary_key=True, comment="stable name of the handler or publisher"),
    Column(
        "order_key",
        Text,
        nullable=False,
        comment="aggregate_type:aggregate_id within which it keeps its turn, or the event's own id",
    ),
    Column(
        "status",
        Text,
        nullable=False,
        server_default=text("'waiting'"),
        comment="waiting, leased, done, skipped or dead",
    ),
    Column(
        "on_dead",
        Text,
        nullable=False,
        server_default=text("'park'"),
        comment="whether later events wait behind it when it is dead (park) or pass (continue)",
    ),
    Column(
        "settled",
        Boolean,
        Computed(
            "status = ANY (ARRAY['done'::text, 'skipped'::text]) "
            "OR status = 'dead'::text AND on_dead = 'continue'::text",
            persisted=True,
        ),
        nullable=False,
        comment="whether later events of its order_key may run",
    ),
    Column("lease_relay", Uuid, comment="relay that holds it now"),
    Column("lease_epoch", BigInteger, comment="epoch of that relay's lease"),
    Column("error_message", Text, comment="newest error, null once done"),
    Column(
        "error_kind",
        Text,
        Computed(ERROR_KIND, persisted=True),
        comment="that error without its numbers and ids, to count those that are alike",
    ),
    CheckConstraint("status IN ('waiting', 'leased', 'done', 'skipped', 'dead')", name="status"),
    CheckConstraint("on_dead IN ('park', 'continue')", name="on_dead"),
    Index(
        "outbox_deliveries_heads", "handler", "order_key", "position", postgresql_where=text("NOT settled")
    ),
    # By it dead letters are counted and listed by what they died of, however many there are of anything else.
    Index(
        "outbox_deliveries_dead",
        "handler",
        "error_kind",
        "position",
        postgresql_where=text("status = 'dead'"),
    ),
    # What a cursor that goes back has to look at, among all that is done.
    Index(
        "outbox_deliveries_passed_over",
        "handler",
        "position",
        postgresql_where=text("settled AND status <> 'done'"),
    ),
    Index(
        "outbox_deliveries_unfinished",
        "position",
        postgresql_where=text("status IN ('waiting', 'leased', 'dead')"),
    ),
    Index("outbox_deliveries_leased", "lease_relay", postgresql_where=text("status = 'leased'")),
    comment="An event and a handler that did not succeed at once: its attempts, its turn, its outcome.",
)

outbox_receipts = Table(
    "outbox_receipts",
    outbox_metadata,
    Column("event_id", Uuid, primary_key=True, comment="the event"),
    moment("created_at", "when the row was written", nullable=False, server_default=clock()),
    Column("handler", Text, primary_key=True, comment="stable name of the handler"),
    Column(
        "outcome",
        Text,
        nullable=False,
        server_default=text("'done'"),
        comment="done: its effect committed with this row; skipped: it never will",
    ),
    CheckConstraint("outcome IN ('done', 'skipped')", name="outcome"),
    comment="What makes an effect happen once: written in the transaction of the handler's commit.",
)

outbox_subscriptions = Table(
    "outbox_subscriptions",
    outbox_metadata,
    Column("name", Text, primary_key=True, comment="stable name of the handler or publisher"),
    Column("kind", Text, nullable=False, comment="handler or publisher"),
    Column("patterns", ARRAY(Text), nullable=False, comment="event types, * for any part"),
    Column("source", Text, comment="the queue whose events it is for; null: those written here"),
    Column(
        "ordered",
        Boolean,
        nullable=False,
        server_default=text("true"),
        comment="whether it takes an aggregate's events one after the other",
    ),
    Column(
        "bounded",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="whether one relay has all of it, so that a bound of it is one of the fleet",
    ),
    Column("renamed_from", Text, comment="the name that it had before, if its code still says so"),
    moment("since", "when it was first carried", nullable=False, server_default=clock()),
    moment("paused_at", "since when an operator holds it"),
    moment("retired_at", "since when it is due for no event"),
    Column(
        "revision",
        BigInteger,
        nullable=False,
        server_default=text("1"),
        comment="raised by every change, so that relays see it",
    ),
    CheckConstraint("kind IN ('handler', 'publisher')", name="kind"),
    comment="Who is due for which events; written when a relay that carries it first starts.",
)

outbox_relays = Table(
    "outbox_relays",
    outbox_metadata,
    Column("id", Uuid, primary_key=True, comment="one for each process that relays"),
    Column(
        "epoch",
        BigInteger,
        nullable=False,
        comment="raised each time it had lost its lease",
        autoincrement=False,
    ),
    moment("started_at", "since when it lives", nullable=False, server_default=clock()),
    moment("renewed_at", "when it last said so", nullable=False, server_default=clock()),
    moment("expires_at", "when others take over unless it says so again", nullable=False),
    Column("process_id", Integer, nullable=False, comment="process id on its host"),
    Column("host", Text, nullable=False, comment="where it runs"),
    Column("code_version", Text, nullable=False, comment="version of the application, as it says"),
    Column(
        "abilities",
        JSONB,
        nullable=False,
        server_default=text("'{}'"),
        comment="per handler it carries, the newest version of each event type it can run",
    ),
    Column(
        "pauses",
        JSONB,
        nullable=False,
        server_default=text("'{}'"),
        comment="who stands still, and queues that give nothing; each with its reason and since when",
    ),
    Column(
        "takes_events",
        Boolean,
        nullable=False,
        server_default=text("true"),
        comment="whether cursors fall to it, as they do to one that serves",
    ),
    Column(
        "patterns",
        JSONB,
        comment="per handler it carries, the patterns it is subscribed by; null: older code does not say",
    ),
    comment="The leases of live relays, a row each.",
)


RELAY_TABLES = (outbox_deliveries, outbox_receipts, outbox_subscriptions, outbox_relays)
LOG_TABLES = (outbox_arrivals, outbox_servers, outbox_progress, outbox_cursors, outbox_cursors_past)
KEY_TABLES = (outbox_subject_keys,)
with_log_views(outbox_metadata)


@cache
def outbox_metadata_in(schema: str | None = None) -> MetaData:
    """Give all tables as they stand in a schema, or where the search path points."""
    if schema is None:
        return outbox_metadata
    metadata = outbox_events_in(schema).metadata
    for table in (*RELAY_TABLES, *LOG_TABLES, *KEY_TABLES):
        table.to_metadata(metadata, schema=schema)
    with_log_views(metadata, schema)
    return metadata
