"""What is said of two columns: of a delivery's position and of a relay's pauses.

Frozen, and without a schema's name, as the first one.
"""

from alembic import op

revision = "outbox_0007"
down_revision = "outbox_0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.alter_column(
        "outbox_deliveries",
        "position",
        comment="its place in the turn: the event's position, or a later number if a queue brought what was there",
    )
    op.alter_column(
        "outbox_relays",
        "pauses",
        comment="publishers whose broker takes nothing, and queues that give nothing; each with reason and since when",
    )


def downgrade() -> None:
    op.alter_column("outbox_deliveries", "position", comment="position of the event")
    op.alter_column(
        "outbox_relays",
        "pauses",
        comment="publishers whose broker takes nothing at the moment, each with the reason and since when",
    )
