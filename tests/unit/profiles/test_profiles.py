"""A profile for each account, without a database (X2)."""

from __future__ import annotations

from uuid import UUID, uuid4

from contexts.accounts.events import AccountCreated, AccountRole
from contexts.profiles.domain import Profile
from contexts.profiles.events import ProfileCreated
from contexts.profiles.handlers import CreateProfileOnAccountCreated
from contexts.profiles.use_cases import CreateProfileHandler
from outbox_kernel import get_handlers_for
from outbox_kernel.testing import ANY, InMemoryRepository, InMemoryUnitOfWork, assert_recorded, run_handler

ACCOUNT_ID = uuid4()


class InMemoryProfiles(InMemoryRepository[Profile]):
    async def of_account(self, account_id: UUID) -> Profile | None:
        return await self.find(lambda profile: profile.account_id == account_id)


class InMemoryProfilesUnitOfWork(InMemoryUnitOfWork):
    @property
    def profiles(self) -> InMemoryProfiles:
        return InMemoryProfiles(self, Profile)


def account_created() -> AccountCreated:
    return AccountCreated(ACCOUNT_ID, "ada@example.org", AccountRole.MEMBER)


def test_the_handler_is_registered_under_a_stable_name() -> None:
    found = {each.name: each.handler for each in get_handlers_for(AccountCreated)}
    assert found["profiles.CreateProfileOnAccountCreated"] is CreateProfileOnAccountCreated


async def test_a_new_account_gets_a_profile() -> None:
    uow = InMemoryProfilesUnitOfWork()
    await run_handler(CreateProfileOnAccountCreated(CreateProfileHandler(uow)), account_created())
    assert_recorded(uow, ProfileCreated(ANY, ACCOUNT_ID))


async def test_an_account_that_has_a_profile_keeps_it() -> None:
    uow = InMemoryProfilesUnitOfWork()
    handler = CreateProfileOnAccountCreated(CreateProfileHandler(uow))
    await run_handler(handler, account_created())
    await run_handler(handler, account_created())
    assert_recorded(uow, ProfileCreated(ANY, ACCOUNT_ID))
