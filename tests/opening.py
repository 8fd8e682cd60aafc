"""Events as whoever may open them gets them: what is sealed in a row tells nobody else."""

from __future__ import annotations

from contexts.families.events import FamilyMemberInvited
from outbox_kernel.infrastructure.operations import desk
from outbox_kernel.infrastructure.operations.opening import opened
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel import DomainEvent


async def events_told(url: str, event_type: str) -> list[DomainEvent]:
    """All events of a type in a database, in order, opened with the master key of this run."""
    async with desk(Settings(database_url=url)) as at:
        return await opened(at, event_type)


async def tokens_sent(url: str, about: object) -> list[str]:
    """The tokens that were sent for an invitation, or for a family, in order."""
    told = await events_told(url, "FamilyMemberInvited")
    return [
        event.token.value
        for event in told
        if isinstance(event, FamilyMemberInvited)
        and str(about) in (str(event.invitation_id.value), str(event.family_id.value))
    ]
