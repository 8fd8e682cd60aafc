"""The table of events and the view for its readers.

Frozen: it never reads the declared tables, so that it makes tomorrow what it made today. It names no
schema; the migrator points the search path at the one of OUTBOX_SCHEMA.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "outbox_0001"
down_revision = None
branch_labels = ("outbox",)
depends_on = None

CLOCK = sa.text("clock_timestamp()")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "outbox_events",
        sa.Column("position", sa.BigInteger, sa.Identity(always=True), comment="order of insertion"),
        sa.Column("event_id", sa.Uuid, nullable=False, comment="the event's own id, a UUIDv7"),
        sa.Column(
            "occurred_at", MOMENT, nullable=False, comment="when it happened, by the application's clock"
        ),
        sa.Column(
            "created_at", MOMENT, nullable=False, server_default=CLOCK, comment="when the row was written"
        ),
        sa.Column(
            "available_at",
            MOMENT,
            nullable=False,
            server_default=CLOCK,
            comment="not before this time is it claimed",
        ),
        sa.Column(
            "updated_at", MOMENT, nullable=False, server_default=CLOCK, comment="when the row last changed"
        ),
        sa.Column("event_version", sa.Integer, nullable=False, comment="schema version of the payload"),
        sa.Column(
            "retry_count",
            sa.Integer,
            nullable=False,
            server_default=sa.text("0"),
            comment="highest number of failed attempts among its handlers",
        ),
        sa.Column(
            "takeovers",
            sa.Integer,
            nullable=False,
            server_default=sa.text("0"),
            comment="how often a relay took it over from one that vanished",
        ),
        sa.Column(
            "status",
            sa.Text,
            nullable=False,
            server_default=sa.text("'pending'"),
            comment="pending, leased, open (some handler unsettled), delivered or dead",
        ),
        sa.Column("event_type", sa.Text, nullable=False, comment="stable wire name of the event"),
        sa.Column("aggregate_type", sa.Text, comment="wire name of the aggregate, if it is one's event"),
        sa.Column("aggregate_id", sa.Uuid, comment="id of the aggregate"),
        sa.Column(
            "aggregate_version", sa.BigInteger, comment="n for the n-th event of the aggregate, without gaps"
        ),
        sa.Column("payload", JSONB, nullable=False, comment="the event's fields, nothing else"),
        sa.Column(
            "headers",
            JSONB,
            nullable=False,
            server_default=sa.text("'{}'"),
            comment="context: who, which request, caused by what",
        ),
        sa.Column("lease_relay", sa.Uuid, comment="relay that holds it now"),
        sa.Column("lease_epoch", sa.BigInteger, comment="epoch of that relay's lease"),
        sa.Column("processed_at", MOMENT, comment="when its outcome was final"),
        sa.Column("error_message", sa.Text, comment="newest error, null once delivered"),
        sa.PrimaryKeyConstraint("position", name="outbox_events_pkey"),
        sa.UniqueConstraint("event_id", name="outbox_events_event_id_key"),
        sa.UniqueConstraint(
            "aggregate_type", "aggregate_id", "aggregate_version", name="outbox_events_aggregate_stream_key"
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'leased', 'open', 'delivered', 'dead')", name="outbox_events_status_check"
        ),
        comment="Domain events, written in the transaction of their change; the relay delivers them.",
    )
    op.create_index(
        "outbox_events_open",
        "outbox_events",
        ["position"],
        postgresql_where=sa.text("status IN ('pending', 'leased')"),
    )
    op.execute("""
        CREATE VIEW outbox AS
        SELECT event_id AS id, event_type, payload, occurred_at,
               status = 'delivered' AS delivered,
               CASE WHEN status = 'delivered' THEN processed_at END AS delivered_at,
               retry_count
        FROM outbox_events
    """)
    op.execute("COMMENT ON VIEW outbox IS 'The outbox for readers who ask only what is delivered.'")


def downgrade() -> None:
    op.execute("DROP VIEW outbox")
    op.drop_table("outbox_events")
