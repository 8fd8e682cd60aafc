"""The id of an aggregate as it is written, where that is no UUID, and the moment before which an event waits.

Frozen, and without a schema's name, as the first one.
"""

import sqlalchemy as sa
from alembic import op

revision = "outbox_0008"
down_revision = "outbox_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "outbox_events",
        sa.Column("aggregate_key", sa.Text, comment="id of the aggregate as written, where that is no UUID"),
    )
    op.add_column(
        "outbox_events",
        sa.Column(
            "not_before",
            sa.DateTime(timezone=True),
            comment="it is handled from then on, outside its aggregate's order",
        ),
    )


def downgrade() -> None:
    op.drop_column("outbox_events", "not_before")
    op.drop_column("outbox_events", "aggregate_key")
