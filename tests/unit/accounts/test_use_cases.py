"""The use cases of accounts, without a database."""

from __future__ import annotations

from uuid import uuid4

import pytest

from contexts.accounts.domain import Account, AccountNotFound, EmailAddress, EmailTaken, InvalidEmail
from contexts.accounts.events import AccountCreated, AccountEmailChanged, AccountRole
from contexts.accounts.use_cases import ChangeEmail, ChangeEmailHandler, SignUp, SignUpHandler
from outbox_kernel.testing import InMemoryStore, assert_recorded
from tests.unit.accounts.in_memory import InMemoryAccountsUnitOfWork


async def test_signing_up_is_an_event() -> None:
    uow = InMemoryAccountsUnitOfWork()
    account_id = await SignUpHandler(uow).handle(SignUp("Ada@example.org"))
    assert_recorded(uow, AccountCreated(account_id, "ada@example.org", AccountRole.MEMBER))


async def test_an_address_is_used_once() -> None:
    uow = InMemoryAccountsUnitOfWork()
    uow.store.put(Account.sign_up(EmailAddress("ada@example.org")))
    with pytest.raises(EmailTaken):
        await SignUpHandler(uow).handle(SignUp("ADA@example.org"))
    assert_recorded(uow)


async def test_two_who_found_the_address_free_give_one_account() -> None:
    store = InMemoryStore()
    first, second = InMemoryAccountsUnitOfWork(store), InMemoryAccountsUnitOfWork(store)
    async with first, second:
        for uow in (first, second):
            uow.accounts.add(Account.sign_up(EmailAddress("ada@example.org")))
        await first.commit()
        with pytest.raises(EmailTaken):
            await second.commit()
    assert len(store.events) == 1


async def test_what_is_no_address_opens_nothing() -> None:
    uow = InMemoryAccountsUnitOfWork()
    with pytest.raises(InvalidEmail):
        await SignUpHandler(uow).handle(SignUp("nobody"))
    assert_recorded(uow)


async def test_changing_the_address_is_an_event() -> None:
    uow = InMemoryAccountsUnitOfWork()
    account = Account.sign_up(EmailAddress("ada@example.org"))
    uow.store.put(account)
    await ChangeEmailHandler(uow).handle(ChangeEmail(account.id, "ada@home.example"))
    assert_recorded(uow, AccountEmailChanged(account.id, "ada@home.example"))


async def test_an_address_of_another_cannot_be_taken_over() -> None:
    uow = InMemoryAccountsUnitOfWork()
    brian = Account.sign_up(EmailAddress("brian@example.org"))
    uow.store.put(brian, Account.sign_up(EmailAddress("ada@example.org")))
    with pytest.raises(EmailTaken):
        await ChangeEmailHandler(uow).handle(ChangeEmail(brian.id, "ada@example.org"))


async def test_an_account_that_is_not_there_cannot_change() -> None:
    with pytest.raises(AccountNotFound):
        await ChangeEmailHandler(InMemoryAccountsUnitOfWork()).handle(ChangeEmail(uuid4(), "ada@example.org"))
