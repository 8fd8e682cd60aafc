"""What the use cases need of whatever stores families."""

from __future__ import annotations

from typing import Protocol

from contexts.families.domain import Family, FamilyMemberInvitation, FamilyNotFound, InvitationNotFound
from contexts.families.events import Email, FamilyId, InvitationId, InvitationToken
from outbox_kernel import Repository, UnitOfWork


class Families(Repository[Family], Protocol):
    """All families."""


class Invitations(Repository[FamilyMemberInvitation], Protocol):
    """All invitations."""

    async def open_to(self, family_id: FamilyId, email: Email) -> FamilyMemberInvitation | None:
        """Return the invitation to this family that is open to this address."""

    async def by_token(self, token: InvitationToken) -> FamilyMemberInvitation | None:
        """Return the invitation whose newest token this is."""


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
