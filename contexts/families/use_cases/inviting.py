"""What the owner and the admins of a family do about invitations: send, send again, take back."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import attrs

from contexts.families.domain import FamilyMemberInvitation, check_mails, email_given
from contexts.families.events import FamilyId, InvitationId, Role, RoleName, UserId
from contexts.families.use_cases.ports import FamiliesUnitOfWork, family_of, invitation_for
from outbox_kernel import clock, retry_on_conflict


@attrs.frozen
class InvitationSent:
    """What whoever invites is told. The token is for the mail alone."""

    invitation_id: UUID
    expires_at: datetime
    is_resend: bool


@attrs.frozen
class InviteFamilyMemberByEmail:
    """Ask the reader of a mailbox to join a family."""

    family_id: UUID
    email: str = attrs.field(repr=lambda _: "***")
    invited_by_user_id: UUID
    role: RoleName = RoleName.MEMBER


@attrs.frozen
class InviteFamilyMemberByEmailHandler:
    """Invites people to families.

    Of those who invite one address at the same moment the first invites, and each other is told of the conflict:
    InvitedMeanwhile where nobody had invited before (the database has one open invitation per address), the kernel's
    ConcurrencyError where two send an invitation again. No `@retry_on_conflict`: it would turn each loser into a
    resend, and so a double click into two mails of which the first has a dead link. Whoever lost has not seen that the
    address is invited; told so, they decide whether to send it again.
    """

    uow: FamiliesUnitOfWork

    async def handle(self, command: InviteFamilyMemberByEmail) -> InvitationSent:
        """Invite, or send the open invitation to this address again, with the role that is meant now."""
        family_id, email = FamilyId(command.family_id), email_given(command.email)
        role, by, now = Role(command.role), UserId(command.invited_by_user_id), clock.now()
        async with self.uow as uow:
            # Asked for before the family is: an invitation that is accepted in between is either met as open, and then
            # the commit is a conflict, or its member is met in the family. (Accepting checks the members once more.)
            present = await uow.invitations.open_to(family_id, email)
            family = await family_of(uow, family_id)
            family.check_invitation(email, role, by)
            check_mails(await uow.invitations.mailed(email, family_id, by), now)
            if present is None:
                invitation = FamilyMemberInvitation.invite(family_id, email, role, by=by, now=now)
                uow.invitations.add(invitation)
            else:
                invitation = present
                invitation.resend(role, by=by, now=now)
            await uow.commit()
        return InvitationSent(invitation.id.value, invitation.expires_at, is_resend=present is not None)


@attrs.frozen
class ResendFamilyMemberInvitation:
    """Send an invitation again, with a new token and the whole time to answer."""

    invitation_id: UUID
    resent_by_user_id: UUID


@attrs.frozen
class ResendFamilyMemberInvitationHandler:
    """Sends invitations again. Two at once are a conflict, as above: one mail is enough."""

    uow: FamiliesUnitOfWork

    async def handle(self, command: ResendFamilyMemberInvitation) -> InvitationSent:
        """Send it again, with the role it has."""
        by, now = UserId(command.resent_by_user_id), clock.now()
        async with self.uow as uow:
            invitation = await invitation_for(uow, InvitationId(command.invitation_id), by)
            mailed = await uow.invitations.mailed(invitation.email, invitation.family_id, by)
            check_mails(mailed, now)
            invitation.resend(invitation.role, by=by, now=now)
            await uow.commit()
        return InvitationSent(invitation.id.value, invitation.expires_at, is_resend=True)


@attrs.frozen
class RevokeFamilyMemberInvitation:
    """Take an invitation back."""

    invitation_id: UUID
    revoked_by_user_id: UUID


@attrs.frozen
class RevokeFamilyMemberInvitationHandler:
    """Takes invitations back."""

    uow: FamiliesUnitOfWork

    # Whoever takes it back means the resend of a moment ago as well; one that was accepted stays accepted.
    @retry_on_conflict
    async def handle(self, command: RevokeFamilyMemberInvitation) -> None:
        """End it, so that its token opens nothing any more."""
        by = UserId(command.revoked_by_user_id)
        async with self.uow as uow:
            invitation = await invitation_for(uow, InvitationId(command.invitation_id), by)
            invitation.revoke(by)
            await uow.commit()
