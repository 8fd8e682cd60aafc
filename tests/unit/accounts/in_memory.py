"""The port of the use cases in memory: the same promises as on PostgreSQL, without a database."""

from __future__ import annotations

from contexts.accounts.domain import Account, EmailAddress, EmailTaken
from outbox_kernel.testing import InMemoryRepository, InMemoryUnitOfWork


class InMemoryAccounts(InMemoryRepository[Account]):
    async def by_email(self, email: EmailAddress) -> Account | None:
        return await self.find(lambda account: account.email == email)


class InMemoryAccountsUnitOfWork(InMemoryUnitOfWork):
    unique = {Account: {"email": EmailTaken}}  # noqa: RUF012 - a constant of the class

    @property
    def accounts(self) -> InMemoryAccounts:
        return InMemoryAccounts(self, Account)
