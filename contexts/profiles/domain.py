"""The profile and its rules."""

from __future__ import annotations

from uuid import UUID, uuid4

from contexts.profiles.events import ProfileCreated
from outbox_kernel import AggregateRoot, aggregate


@aggregate("profile")
class Profile(AggregateRoot):
    """What others see of the holder of an account."""

    id: UUID
    account_id: UUID
    display_name: str = ""

    @classmethod
    def of_account(cls, account_id: UUID) -> Profile:
        """Make the profile of an account, without a name yet: the address it signed up with is nobody's business."""
        profile = cls(uuid4(), account_id)
        profile.record(ProfileCreated(profile.id, account_id))
        return profile
