"""The table of accounts."""

import sqlalchemy as sa
from alembic import op

revision = "accounts_0001"
down_revision = None
branch_labels = ("accounts",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("email", sa.Text, nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default=sa.text("1")),
        sa.PrimaryKeyConstraint("id", name="accounts_pkey"),
        sa.UniqueConstraint("email", name="accounts_email_key"),
    )


def downgrade() -> None:
    op.drop_table("accounts")
