"""The turns of deliveries by handler, so that what one waits for costs no other's claims.

Frozen, and without a schema's name, as the first one.
"""

import sqlalchemy as sa
from alembic import op

revision = "outbox_0005"
down_revision = "outbox_0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create("outbox_deliveries_heads", ["handler", "order_key", "position"])
    op.drop_index("outbox_deliveries_turn", "outbox_deliveries")


def downgrade() -> None:
    _create("outbox_deliveries_turn", ["order_key", "handler", "position"])
    op.drop_index("outbox_deliveries_heads", "outbox_deliveries")


def _create(name: str, columns: list[str]) -> None:
    op.create_index(name, "outbox_deliveries", columns, postgresql_where=sa.text("NOT settled"))
