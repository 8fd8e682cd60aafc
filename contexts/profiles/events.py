"""What this context publishes: the only room that another context may import."""

from __future__ import annotations

from uuid import UUID

from outbox_kernel import DomainEvent, event


@event
class ProfileCreated(DomainEvent):
    """An account has a profile from now on."""

    profile_id: UUID
    account_id: UUID
