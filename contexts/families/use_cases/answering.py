"""How an invitation is answered: by a yes, or by nobody in time."""

from __future__ import annotations

from uuid import UUID

import attrs

from contexts.families.domain import TokenUnknown
from contexts.families.events import InvitationId, InvitationToken, UserId
from contexts.families.use_cases.ports import FamiliesUnitOfWork, family_of, invitation_of
from outbox_kernel import clock, retry_on_conflict


@attrs.frozen
class AcceptFamilyMemberInvitation:
    """Join the family, by the token from the mail."""

    token: str = attrs.field(repr=lambda _: "***")
    user_id: UUID


@attrs.frozen
class AcceptFamilyMemberInvitationHandler:
    """Lets people join.

    Invitation and family change in one transaction: nobody is to see a yes without its member, and a member who could
    not be taken in must leave the invitation open.
    """

    uow: FamiliesUnitOfWork

    # Two who join one family at once both mean it still when the other is in.
    @retry_on_conflict
    async def handle(self, command: AcceptFamilyMemberInvitation) -> UUID:
        """Join, and return the id of the family."""
        token, user_id = InvitationToken(command.token), UserId(command.user_id)
        async with self.uow as uow:
            invitation = await uow.invitations.by_token(token)
            if invitation is None:
                raise TokenUnknown
            family = await family_of(uow, invitation.family_id)
            invitation.accept(token, user_id, now=clock.now())
            family.admit(user_id, invitation.email, invitation.role)
            await uow.commit()
        return family.id.value


@attrs.frozen
class ExpireFamilyMemberInvitation:
    """Give up waiting for an answer: what a scheduled job asks for."""

    invitation_id: UUID


@attrs.frozen
class ExpireFamilyMemberInvitationHandler:
    """Ends invitations whose time is over."""

    uow: FamiliesUnitOfWork

    async def handle(self, command: ExpireFamilyMemberInvitation) -> None:
        """End it, unless it was sent again or ended in the meantime."""
        async with self.uow as uow:
            invitation = await invitation_of(uow, InvitationId(command.invitation_id))
            invitation.expire(now=clock.now())
            await uow.commit()
