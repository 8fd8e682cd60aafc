"""What a relay is there for, told in the row of its lease: whether it takes events, and what it is subscribed to.

Frozen, and without a schema's name, as the first one.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "outbox_0006"
down_revision = "outbox_0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "outbox_relays",
        sa.Column(
            "takes_events",
            sa.Boolean,
            nullable=False,
            server_default=sa.text("true"),
            comment="whether it claims pending events, and not deliveries alone",
        ),
    )
    op.add_column(
        "outbox_relays",
        sa.Column(
            "patterns",
            JSONB,
            comment="per handler it carries, the patterns it is subscribed by; null: older code does not say",
        ),
    )


def downgrade() -> None:
    op.drop_column("outbox_relays", "patterns")
    op.drop_column("outbox_relays", "takes_events")
