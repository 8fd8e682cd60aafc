"""Families in PostgreSQL: the tables, the mapping, the repositories and the unit of work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from operator import attrgetter
from typing import Any, ClassVar

from sqlalchemy import (
    Column,
    ColumnElement,
    DateTime,
    ForeignKey,
    Index,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    Uuid,
    or_,
    select,
)
from sqlalchemy import Enum as EnumColumn
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import registry, relationship
from sqlalchemy.types import TypeEngine

from contexts.families.domain import (
    Family,
    FamilyMemberInvitation,
    InvitationStatus,
    InvitedMeanwhile,
    Member,
)
from contexts.families.events import (
    Email,
    FamilyId,
    FamilyName,
    InvitationId,
    InvitationToken,
    Role,
    RoleName,
    UserId,
)
from outbox_kernel import SqlAlchemyRepository, SqlAlchemyUnitOfWork, aggregate_columns, map_aggregate

OPEN_INVITATION_KEY = "family_member_invitations_open_key"


class Value(TypeDecorator[Any]):
    """A value object of this context, stored as what it holds."""

    impl = Text
    cache_ok = True
    # A flush sorts rows by their keys, and value objects have no order of their own.
    sort_key_function = attrgetter("value")

    def __init__(self, made_of: type[Any], stored_as: TypeEngine[Any]) -> None:
        super().__init__()
        self.made_of = made_of
        self.impl = stored_as  # type: ignore[assignment]  # a type on the class, and an instance of one on the instance

    def process_bind_param(self, value: Any, dialect: Any) -> Any:  # noqa: ARG002
        """Write it."""
        return None if value is None else value.value

    def process_result_value(self, value: Any, dialect: Any) -> Any:  # noqa: ARG002
        """Read it."""
        return None if value is None else self.made_of(value)


def _of(members: type[Enum]) -> EnumColumn:
    return EnumColumn(
        members, native_enum=False, length=20, values_callable=lambda found: [each.value for each in found]
    )


families_metadata = MetaData()

families_table = Table(
    "families",
    families_metadata,
    Column("id", Value(FamilyId, Uuid()), primary_key=True),
    Column("name", Value(FamilyName, Text()), nullable=False),
    *aggregate_columns(),
)

# The users are another context's, so no foreign key leads there.
members_table = Table(
    "family_members",
    families_metadata,
    Column("family_id", Value(FamilyId, Uuid()), ForeignKey("families.id"), primary_key=True),
    Column("user_id", Value(UserId, Uuid()), primary_key=True),
    Column("email", Value(Email, Text()), nullable=False),
    Column("role", Value(Role, _of(RoleName)), nullable=False),
    Column("joined_at", DateTime(timezone=True), nullable=False),
    UniqueConstraint("family_id", "email", name="family_members_email_key"),
)

invitations_table = Table(
    "family_member_invitations",
    families_metadata,
    Column("id", Value(InvitationId, Uuid()), primary_key=True),
    Column("family_id", Value(FamilyId, Uuid()), ForeignKey("families.id"), nullable=False),
    Column("email", Value(Email, Text()), nullable=False),
    Column("role", Value(Role, _of(RoleName)), nullable=False),
    Column("token_digest", Text, nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Column("invited_by", Value(UserId, Uuid()), nullable=False),
    Column("status", _of(InvitationStatus), nullable=False),
    Column("accepted_by", Value(UserId, Uuid())),
    Column("mailed_at", ARRAY(DateTime(timezone=True), as_tuple=True), nullable=False),
    *aggregate_columns(),
    UniqueConstraint("token_digest", name="family_member_invitations_token_key"),
)

_IS_OPEN = invitations_table.c.status == InvitationStatus.OPEN

# What makes one invitation of two that are made at once; those that have ended may be as many as there were.
Index(
    OPEN_INVITATION_KEY,
    invitations_table.c.family_id,
    invitations_table.c.email,
    unique=True,
    postgresql_where=_IS_OPEN,
)
# For whom an address was mailed lately, ended invitations included.
Index("family_member_invitations_email_idx", invitations_table.c.email)

_mappers = registry()
_mappers.map_imperatively(Member, members_table)
map_aggregate(
    _mappers,
    Family,
    families_table,
    properties={
        "members": relationship(
            Member, lazy="selectin", cascade="all, delete-orphan", order_by=members_table.c.joined_at
        )
    },
)
map_aggregate(_mappers, FamilyMemberInvitation, invitations_table)


class SqlInvitations(SqlAlchemyRepository[FamilyMemberInvitation]):
    """All invitations, in their table."""

    async def open_to(self, family_id: FamilyId, email: Email) -> FamilyMemberInvitation | None:
        """Return the invitation to this family that is open to this address."""
        table = invitations_table.c
        return await self._the_one(_IS_OPEN, table.family_id == family_id, table.email == email)

    async def by_token(self, token: InvitationToken) -> FamilyMemberInvitation | None:
        """Return the invitation whose newest token this is: found by digest, so that no time taken tells a token."""
        return await self._the_one(invitations_table.c.token_digest == token.digest)

    async def mailed(self, email: Email, family_id: FamilyId, by: UserId) -> Sequence[datetime]:
        """Return when this address was last mailed for this family, and by this user for whichever."""
        table = invitations_table.c
        found = await self._session.scalars(
            select(table.mailed_at).where(
                table.email == email, or_(table.family_id == family_id, table.invited_by == by)
            )
        )
        return [moment for moments in found for moment in moments]

    async def _the_one(self, *conditions: ColumnElement[bool]) -> FamilyMemberInvitation | None:
        found: FamilyMemberInvitation | None = await self._session.scalar(
            select(FamilyMemberInvitation).where(*conditions)
        )
        return found


class SqlFamiliesUnitOfWork(SqlAlchemyUnitOfWork):
    """The unit of work of this context on PostgreSQL."""

    # Two who invite one address at the same moment both find no invitation; the database decides.
    constraint_errors: ClassVar[Mapping[str, Callable[[], Exception]]] = {
        OPEN_INVITATION_KEY: InvitedMeanwhile
    }

    @property
    def families(self) -> SqlAlchemyRepository[Family]:
        """All families."""
        return SqlAlchemyRepository(self.session, Family)

    @property
    def invitations(self) -> SqlInvitations:
        """All invitations."""
        return SqlInvitations(self.session, FamilyMemberInvitation)
