"""What those may see whom it concerns."""

from __future__ import annotations

from uuid import UUID

import attrs

from contexts.families.domain import Family, FamilyMemberInvitation, FamilyNotFound
from contexts.families.events import FamilyId, InvitationId, UserId
from contexts.families.use_cases.ports import FamiliesUnitOfWork, family_of, invitation_for


@attrs.frozen
class FindFamily:
    """Look at one's family."""

    family_id: UUID
    asked_by_user_id: UUID


@attrs.frozen
class FindFamilyHandler:
    """Finds families."""

    uow: FamiliesUnitOfWork

    async def handle(self, query: FindFamily) -> Family:
        """Return the family, to read; to who does not belong to it, it is not there."""
        async with self.uow as uow:
            family = await family_of(uow, FamilyId(query.family_id))
            if not family.has_member(UserId(query.asked_by_user_id)):
                raise FamilyNotFound(family.id)
        return family


@attrs.frozen
class FindFamilyMemberInvitation:
    """Look at an invitation."""

    invitation_id: UUID
    asked_by_user_id: UUID


@attrs.frozen
class FindFamilyMemberInvitationHandler:
    """Finds invitations."""

    uow: FamiliesUnitOfWork

    async def handle(self, query: FindFamilyMemberInvitation) -> FamilyMemberInvitation:
        """Return the invitation, to read, to those who decide, or raise InvitationNotFound or NotAllowed."""
        async with self.uow as uow:
            return await invitation_for(
                uow, InvitationId(query.invitation_id), UserId(query.asked_by_user_id)
            )
