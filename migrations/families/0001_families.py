"""The tables of families, their members and their invitations."""

import sqlalchemy as sa
from alembic import op

revision = "families_0001"
down_revision = None
branch_labels = ("families",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "families",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default=sa.text("1")),
        sa.PrimaryKeyConstraint("id", name="families_pkey"),
    )
    op.create_table(
        "family_members",
        sa.Column("family_id", sa.Uuid, nullable=False),
        sa.Column("user_id", sa.Uuid, nullable=False),
        sa.Column("email", sa.Text, nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("joined_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("family_id", "user_id", name="family_members_pkey"),
        sa.ForeignKeyConstraint(["family_id"], ["families.id"], name="family_members_family_id_fkey"),
        sa.UniqueConstraint("family_id", "email", name="family_members_email_key"),
    )
    op.create_table(
        "family_member_invitations",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("family_id", sa.Uuid, nullable=False),
        sa.Column("email", sa.Text, nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("token_digest", sa.Text, nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("invited_by", sa.Uuid, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("accepted_by", sa.Uuid),
        sa.Column("mailed_at", sa.ARRAY(sa.DateTime(timezone=True)), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default=sa.text("1")),
        sa.PrimaryKeyConstraint("id", name="family_member_invitations_pkey"),
        sa.ForeignKeyConstraint(
            ["family_id"], ["families.id"], name="family_member_invitations_family_id_fkey"
        ),
        sa.UniqueConstraint("token_digest", name="family_member_invitations_token_key"),
    )
    op.create_index(
        "family_member_invitations_open_key",
        "family_member_invitations",
        ["family_id", "email"],
        unique=True,
        postgresql_where=sa.text("status = 'open'"),
    )
    op.create_index("family_member_invitations_email_idx", "family_member_invitations", ["email"])


def downgrade() -> None:
    op.drop_table("family_member_invitations")
    op.drop_table("family_members")
    op.drop_table("families")
