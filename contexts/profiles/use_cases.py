"""What this context can be asked to do: a command each, with its handler."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

import attrs

from contexts.profiles.domain import Profile
from outbox_kernel import Repository, UnitOfWork


class Profiles(Repository[Profile], Protocol):
    """All profiles."""

    async def of_account(self, account_id: UUID) -> Profile | None:
        """Return the profile of this account."""


class ProfilesUnitOfWork(UnitOfWork, Protocol):
    """The unit of work of this context. No account that it commits has two profiles."""

    @property
    def profiles(self) -> Profiles:
        """All profiles."""


@attrs.frozen
class CreateProfile:
    """Make the profile of an account."""

    account_id: UUID


@attrs.frozen
class CreateProfileHandler:
    """Makes profiles."""

    uow: ProfilesUnitOfWork

    async def handle(self, command: CreateProfile) -> UUID:
        """Make the profile and return its id; an account that has one keeps it."""
        async with self.uow as uow:
            present = await uow.profiles.of_account(command.account_id)
            if present is not None:
                return present.id
            profile = Profile.of_account(command.account_id)
            uow.profiles.add(profile)
            await uow.commit()
        return profile.id
