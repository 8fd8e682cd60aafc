"""Which publishers a relay has paused, told in the row of its lease.

Frozen, and without a schema's name, as the first one.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "outbox_0003"
down_revision = "outbox_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "outbox_relays",
        sa.Column(
            "pauses",
            JSONB,
            nullable=False,
            server_default=sa.text("'{}'"),
            comment="publishers whose broker takes nothing at the moment, each with the reason and since when",
        ),
    )


def downgrade() -> None:
    op.drop_column("outbox_relays", "pauses")
