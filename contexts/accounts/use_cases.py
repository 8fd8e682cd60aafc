"""What this context can be asked to do: a command each, with its handler."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

import attrs

from contexts.accounts.domain import Account, AccountNotFound, EmailAddress, EmailTaken
from contexts.accounts.events import AccountRole
from outbox_kernel import Repository, UnitOfWork, retry_on_conflict


class Accounts(Repository[Account], Protocol):
    """All accounts."""

    async def by_email(self, email: EmailAddress) -> Account | None:
        """Return the account that has this address."""


class AccountsUnitOfWork(UnitOfWork, Protocol):
    """The unit of work of this context. No two accounts that it commits share an e-mail address."""

    @property
    def accounts(self) -> Accounts:
        """All accounts."""


@attrs.frozen
class SignUp:
    """Open an account."""

    email: str = attrs.field(repr=lambda _: "***")
    role: AccountRole = AccountRole.MEMBER


@attrs.frozen
class SignUpHandler:
    """Opens accounts."""

    uow: AccountsUnitOfWork

    async def handle(self, command: SignUp) -> UUID:
        """Open the account and return its id, or raise InvalidEmail or EmailTaken."""
        email = EmailAddress.given(command.email)
        async with self.uow as uow:
            if await uow.accounts.by_email(email):
                raise EmailTaken
            account = Account.sign_up(email, command.role)
            uow.accounts.add(account)
            await uow.commit()
        return account.id


@attrs.frozen
class ChangeEmail:
    """Use another address."""

    account_id: UUID
    email: str = attrs.field(repr=lambda _: "***")


@attrs.frozen
class ChangeEmailHandler:
    """Changes the address of accounts."""

    uow: AccountsUnitOfWork

    # The holder and the support may do it at once: whoever comes second begins again, on what the first left.
    @retry_on_conflict
    async def handle(self, command: ChangeEmail) -> None:
        """Change the address, or raise InvalidEmail, EmailTaken or AccountNotFound."""
        email = EmailAddress.given(command.email)
        async with self.uow as uow:
            account = await uow.accounts.get(command.account_id)
            if account is None:
                raise AccountNotFound(command.account_id)
            if await uow.accounts.by_email(email) not in (None, account):
                raise EmailTaken
            account.change_email(email)
            await uow.commit()


@attrs.frozen
class FindAccount:
    """Look at one account."""

    account_id: UUID


@attrs.frozen
class FindAccountHandler:
    """Finds accounts."""

    uow: AccountsUnitOfWork

    async def handle(self, query: FindAccount) -> Account:
        """Return the account, to read, or raise AccountNotFound."""
        async with self.uow as uow:
            account = await uow.accounts.get(query.account_id)
        if account is None:
            raise AccountNotFound(query.account_id)
        return account
