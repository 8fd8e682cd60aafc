"""What the use cases need of whatever stores families."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from contexts.families.domain import Family, FamilyMemberInvitation, FamilyNotFound, InvitationNotFound
from contexts.families.events import Email, FamilyId, InvitationId, InvitationToken, UserId
from outbox_kernel import Repository, UnitOfWork


class Families(Repository[Family], Protocol):
    """All families."""


class Invitations(Repository[FamilyMemberInvitation], Protocol):
    """All invitations."""

    async def open_to(self, family_id: FamilyId, email: Email) -> FamilyMemberInvitation | None:
        """Return the invitation to this family that is open to this address."""

    async def by_token(self, token: InvitationToken) -> FamilyMemberInvitation | None:
        """Return the invitation whose newest token this is."""

    async def mailed(self, email: Email, family_id: FamilyId, by: UserId) -> Sequence[datetime]:
        """Return when this address was last mailed for this family, and by this user for whichever."""


class FamiliesUnitOfWork(UnitOfWork, Protocol):
    """The unit of work of this context. No family that it commits has two invitations open to one address."""

    @property
    def families(self) -> Families:
        """All families."""

    @property
    def invitations(self) -> Invitations:
        """All invitations."""


async def family_of(uow: FamiliesUnitOfWork, family_id: FamilyId) -> Family:
    """Return this family, or raise FamilyNotFound."""
    family = await uow.families.get(family_id)
    if family is None:
        raise FamilyNotFound(family_id)
    return family


async def invitation_of(uow: FamiliesUnitOfWork, invitation_id: InvitationId) -> FamilyMemberInvitation:
    """Return this invitation, or raise InvitationNotFound."""
    invitation = await uow.invitations.get(invitation_id)
    if invitation is None:
        raise InvitationNotFound(invitation_id)
    return invitation


async def invitation_for(
    uow: FamiliesUnitOfWork, invitation_id: InvitationId, user_id: UserId
) -> FamilyMemberInvitation:
    """Return this invitation to one who decides about it, or raise InvitationNotFound or NotAllowed."""
    invitation = await invitation_of(uow, invitation_id)
    family = await family_of(uow, invitation.family_id)
    if not family.has_member(user_id):
        raise InvitationNotFound(invitation_id)
    family.check_manager(user_id)
    return invitation
