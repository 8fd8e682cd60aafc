"""The relays' tables: deliveries, receipts, subscriptions, and the lease of each live relay.

Frozen, and without a schema's name, as the first one.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "outbox_0002"
down_revision = "outbox_0001"
branch_labels = None
depends_on = None

CLOCK = sa.text("clock_timestamp()")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    _deliveries()
    _receipts()
    _subscriptions()
    _relays()


def _deliveries() -> None:
    op.create_table(
        "outbox_deliveries",
        sa.Column("event_id", sa.Uuid, comment="the event"),
        sa.Column("position", sa.BigInteger, nullable=False, comment="position of the event"),
        sa.Column(
            "created_at", MOMENT, nullable=False, server_default=CLOCK, comment="when the row was written"
        ),
        sa.Column(
            "available_at",
            MOMENT,
            nullable=False,
            server_default=CLOCK,
            comment="not before this time does it run",
        ),
        sa.Column(
            "updated_at", MOMENT, nullable=False, server_default=CLOCK, comment="when the row last changed"
        ),
        sa.Column(
            "attempts", sa.Integer, nullable=False, server_default=sa.text("0"), comment="failures so far"
        ),
        sa.Column(
            "takeovers",
            sa.Integer,
            nullable=False,
            server_default=sa.text("0"),
            comment="how often it was found unfinished by a relay that vanished",
        ),
        sa.Column(
            "alone",
            sa.Boolean,
            nullable=False,
            server_default=sa.text("false"),
            comment="runs while nothing else does: a relay that vanishes meanwhile was killed by it",
        ),
        sa.Column("handler", sa.Text, comment="stable name of the handler or publisher"),
        sa.Column(
            "order_key",
            sa.Text,
            nullable=False,
            comment="aggregate_type:aggregate_id within which it keeps its turn, or the event's own id",
        ),
        sa.Column(
            "status",
            sa.Text,
            nullable=False,
            server_default=sa.text("'waiting'"),
            comment="waiting, leased, done, skipped or dead",
        ),
        sa.Column(
            "on_dead",
            sa.Text,
            nullable=False,
            server_default=sa.text("'park'"),
            comment="whether later events wait behind it when it is dead (park) or pass (continue)",
        ),
        sa.Column(
            "settled",
            sa.Boolean,
            sa.Computed(
                # As the server writes it, so that it can be compared with what is declared.
                "status = ANY (ARRAY['done'::text, 'skipped'::text]) "
                "OR status = 'dead'::text AND on_dead = 'continue'::text",
                persisted=True,
            ),
            nullable=False,
            comment="whether later events of its order_key may run",
        ),
        sa.Column("lease_relay", sa.Uuid, comment="relay that holds it now"),
        sa.Column("lease_epoch", sa.BigInteger, comment="epoch of that relay's lease"),
        sa.Column("error_message", sa.Text, comment="newest error, null once done"),
        sa.PrimaryKeyConstraint("event_id", "handler", name="outbox_deliveries_pkey"),
        sa.CheckConstraint(
            "status IN ('waiting', 'leased', 'done', 'skipped', 'dead')",
            name="outbox_deliveries_status_check",
        ),
        sa.CheckConstraint("on_dead IN ('park', 'continue')", name="outbox_deliveries_on_dead_check"),
        comment="An event and a handler that did not succeed at once: its attempts, its turn, its outcome.",
    )
    op.create_index(
        "outbox_deliveries_turn",
        "outbox_deliveries",
        ["order_key", "handler", "position"],
        postgresql_where=sa.text("NOT settled"),
    )
    op.create_index(
        "outbox_deliveries_leased",
        "outbox_deliveries",
        ["lease_relay"],
        postgresql_where=sa.text("status = 'leased'"),
    )


def _receipts() -> None:
    op.create_table(
        "outbox_receipts",
        sa.Column("event_id", sa.Uuid, comment="the event"),
        sa.Column(
            "created_at", MOMENT, nullable=False, server_default=CLOCK, comment="when the row was written"
        ),
        sa.Column("handler", sa.Text, comment="stable name of the handler"),
        sa.Column(
            "outcome",
            sa.Text,
            nullable=False,
            server_default=sa.text("'done'"),
            comment="done: its effect committed with this row; skipped: it never will",
        ),
        sa.PrimaryKeyConstraint("event_id", "handler", name="outbox_receipts_pkey"),
        sa.CheckConstraint("outcome IN ('done', 'skipped')", name="outbox_receipts_outcome_check"),
        comment="What makes an effect happen once: written in the transaction of the handler's commit.",
    )


def _subscriptions() -> None:
    op.create_table(
        "outbox_subscriptions",
        sa.Column("name", sa.Text, comment="stable name of the handler or publisher"),
        sa.Column("kind", sa.Text, nullable=False, comment="handler or publisher"),
        sa.Column("patterns", ARRAY(sa.Text), nullable=False, comment="event types, * for any part"),
        sa.Column(
            "ordered",
            sa.Boolean,
            nullable=False,
            server_default=sa.text("true"),
            comment="whether it takes an aggregate's events one after the other",
        ),
        sa.Column("since", MOMENT, nullable=False, server_default=CLOCK, comment="when it was first carried"),
        sa.Column("paused_at", MOMENT, comment="since when an operator holds it"),
        sa.Column("retired_at", MOMENT, comment="since when it is due for no event"),
        sa.Column(
            "revision",
            sa.BigInteger,
            nullable=False,
            server_default=sa.text("1"),
            comment="raised by every change, so that relays see it",
        ),
        sa.PrimaryKeyConstraint("name", name="outbox_subscriptions_pkey"),
        sa.CheckConstraint("kind IN ('handler', 'publisher')", name="outbox_subscriptions_kind_check"),
        comment="Who is due for which events; written when a relay that carries it first starts.",
    )


def _relays() -> None:
    op.create_table(
        "outbox_relays",
        sa.Column("id", sa.Uuid, comment="one for each process that relays"),
        sa.Column("epoch", sa.BigInteger, nullable=False, comment="raised each time it had lost its lease"),
        sa.Column("started_at", MOMENT, nullable=False, server_default=CLOCK, comment="since when it lives"),
        sa.Column("renewed_at", MOMENT, nullable=False, server_default=CLOCK, comment="when it last said so"),
        sa.Column(
            "expires_at", MOMENT, nullable=False, comment="when others take over unless it says so again"
        ),
        sa.Column("process_id", sa.Integer, nullable=False, comment="process id on its host"),
        sa.Column("host", sa.Text, nullable=False, comment="where it runs"),
        sa.Column("code_version", sa.Text, nullable=False, comment="version of the application, as it says"),
        sa.Column(
            "abilities",
            JSONB,
            nullable=False,
            server_default=sa.text("'{}'"),
            comment="per handler it carries, the newest version of each event type it can run",
        ),
        sa.PrimaryKeyConstraint("id", name="outbox_relays_pkey"),
        comment="The leases of live relays, a row each.",
    )


def downgrade() -> None:
    for table in ("outbox_relays", "outbox_subscriptions", "outbox_receipts", "outbox_deliveries"):
        op.drop_table(table)
    # What only a relay can have written has no meaning without one.
    op.execute(
        "UPDATE outbox_events SET status = 'pending', lease_relay = NULL, lease_epoch = NULL "
        "WHERE status IN ('leased', 'open')"
    )
