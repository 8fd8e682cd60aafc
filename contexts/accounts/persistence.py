"""Accounts in PostgreSQL: the table, the mapping, the repository and the unit of work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from sqlalchemy import Column, Enum, MetaData, Table, Text, TypeDecorator, UniqueConstraint, Uuid, select
from sqlalchemy.orm import registry

from contexts.accounts.domain import Account, EmailAddress, EmailTaken
from contexts.accounts.events import AccountRole
from outbox_kernel import SqlAlchemyRepository, SqlAlchemyUnitOfWork, aggregate_columns, map_aggregate

EMAIL_KEY = "accounts_email_key"


class EmailColumn(TypeDecorator[EmailAddress]):
    """An e-mail address, stored as its text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: EmailAddress | None, dialect: Any) -> str | None:  # noqa: ARG002
        """Write it."""
        return None if value is None else value.value

    def process_result_value(self, value: str | None, dialect: Any) -> EmailAddress | None:  # noqa: ARG002
        """Read it."""
        return None if value is None else EmailAddress(value)


def _values(roles: type[AccountRole]) -> list[str]:
    return [role.value for role in roles]


accounts_metadata = MetaData()

accounts_table = Table(
    "accounts",
    accounts_metadata,
    Column("id", Uuid, primary_key=True),
    Column("email", EmailColumn, nullable=False),
    Column("role", Enum(AccountRole, native_enum=False, length=20, values_callable=_values), nullable=False),
    *aggregate_columns(),
    UniqueConstraint("email", name=EMAIL_KEY),
)

map_aggregate(registry(), Account, accounts_table)


class SqlAccounts(SqlAlchemyRepository[Account]):
    """All accounts, in their table."""

    async def by_email(self, email: EmailAddress) -> Account | None:
        """Return the account that has this address."""
        found: Account | None = await self._session.scalar(
            select(Account).where(accounts_table.c.email == email)
        )
        return found


class SqlAccountsUnitOfWork(SqlAlchemyUnitOfWork):
    """The unit of work of this context on PostgreSQL."""

    # Two who sign up with one address at the same moment both find it free; the database decides.
    constraint_errors: ClassVar[Mapping[str, Callable[[], Exception]]] = {EMAIL_KEY: EmailTaken}

    @property
    def accounts(self) -> SqlAccounts:
        """All accounts."""
        return SqlAccounts(self.session, Account)
