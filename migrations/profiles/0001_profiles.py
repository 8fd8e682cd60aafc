"""The table of profiles."""

import sqlalchemy as sa
from alembic import op

revision = "profiles_0001"
down_revision = None
branch_labels = ("profiles",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "profiles",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("account_id", sa.Uuid, nullable=False),
        sa.Column("display_name", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default=sa.text("1")),
        sa.PrimaryKeyConstraint("id", name="profiles_pkey"),
        sa.UniqueConstraint("account_id", name="profiles_account_id_key"),
    )


def downgrade() -> None:
    op.drop_table("profiles")
