"""The tables of templates, messages to groups and scheduled messages."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "messaging_0001"
down_revision = None
branch_labels = ("messaging",)
depends_on = None


def _aggregate_columns() -> tuple[sa.Column[int], sa.Column[int]]:
    return (
        sa.Column("version", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default=sa.text("1")),
    )


def _template_key(name: str) -> sa.ForeignKeyConstraint:
    columns = ["template_id"], ["message_templates.id"]
    return sa.ForeignKeyConstraint(*columns, name=name, deferrable=True, initially="DEFERRED")


def upgrade() -> None:
    op.create_table(
        "message_templates",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("account_id", sa.Uuid, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        *_aggregate_columns(),
        sa.PrimaryKeyConstraint("id", name="message_templates_pkey"),
    )
    op.create_table(
        "group_messages",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("account_id", sa.Uuid, nullable=False),
        sa.Column("channel_id", sa.Uuid, nullable=False),
        sa.Column("template_id", sa.Uuid, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("contact_group_ids", postgresql.ARRAY(sa.Uuid), nullable=False),
        sa.Column("total_recipients", sa.Integer, nullable=False),
        sa.Column("scheduled_at", sa.DateTime(timezone=True)),
        *_aggregate_columns(),
        sa.PrimaryKeyConstraint("id", name="group_messages_pkey"),
        _template_key("group_messages_template_id_fkey"),
    )
    op.create_table(
        "scheduled_messages",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("account_id", sa.Uuid, nullable=False),
        sa.Column("channel_id", sa.Uuid, nullable=False),
        sa.Column("template_id", sa.Uuid, nullable=False),
        sa.Column("send_type", sa.String(20), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("scheduled_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("timezone", sa.Text, nullable=False),
        sa.Column("recurrence_rule", sa.Text),
        sa.Column("next_trigger_at", sa.DateTime(timezone=True)),
        *_aggregate_columns(),
        sa.PrimaryKeyConstraint("id", name="scheduled_messages_pkey"),
        _template_key("scheduled_messages_template_id_fkey"),
    )


def downgrade() -> None:
    op.drop_table("scheduled_messages")
    op.drop_table("group_messages")
    op.drop_table("message_templates")
