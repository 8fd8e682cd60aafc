"""What is said of a delivery's position, which is its event's or a later number.

Frozen, and without a schema's name, as the first one.
"""

from alembic import op

revision = "outbox_0007"
down_revision = "outbox_0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _say("its place in the turn: the event's position, or a later number if a queue brought what was there")


def downgrade() -> None:
    _say("position of the event")


def _say(comment: str) -> None:
    op.alter_column("outbox_deliveries", "position", comment=comment)
