"""What this context does when something has happened."""

from __future__ import annotations

import attrs

from contexts.accounts.events import AccountCreated
from contexts.profiles.use_cases import CreateProfile, CreateProfileHandler
from outbox_kernel import handles


@handles(AccountCreated)
@attrs.frozen
class CreateProfileOnAccountCreated:
    """Gives each new account its profile, once: the commit of the use case writes the receipt."""

    create_profile: CreateProfileHandler

    async def handle(self, event: AccountCreated) -> None:
        """Make the profile of the account."""
        await self.create_profile.handle(CreateProfile(event.account_id))
