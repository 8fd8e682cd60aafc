"""Profiles in PostgreSQL: the table, the mapping, the repository and the unit of work."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Column, MetaData, Table, Text, UniqueConstraint, Uuid, select
from sqlalchemy.orm import registry

from contexts.profiles.domain import Profile
from outbox_kernel import SqlAlchemyRepository, SqlAlchemyUnitOfWork, aggregate_columns, map_aggregate

profiles_metadata = MetaData()

# No foreign key: accounts is another context, and may live in another database one day.
profiles_table = Table(
    "profiles",
    profiles_metadata,
    Column("id", Uuid, primary_key=True),
    Column("account_id", Uuid, nullable=False),
    Column("display_name", Text, nullable=False),
    *aggregate_columns(),
    UniqueConstraint("account_id", name="profiles_account_id_key"),
)

map_aggregate(registry(), Profile, profiles_table)


class SqlProfiles(SqlAlchemyRepository[Profile]):
    """All profiles, in their table."""

    async def of_account(self, account_id: UUID) -> Profile | None:
        """Return the profile of this account."""
        found: Profile | None = await self._session.scalar(
            select(Profile).where(profiles_table.c.account_id == account_id)
        )
        return found


class SqlProfilesUnitOfWork(SqlAlchemyUnitOfWork):
    """The unit of work of this context on PostgreSQL."""

    @property
    def profiles(self) -> SqlProfiles:
        """All profiles."""
        return SqlProfiles(self.session, Profile)
