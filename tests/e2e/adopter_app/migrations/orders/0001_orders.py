"""The table of orders."""

import sqlalchemy as sa
from alembic import op

revision = "orders_0001"
down_revision = None
branch_labels = ("orders",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "orders",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("cents", sa.Integer, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default=sa.text("1")),
    )


def downgrade() -> None:
    op.drop_table("orders")
