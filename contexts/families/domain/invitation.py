"""The invitation, which lives by its events: each method decides, and only what is applied changes it (K3)."""

from __future__ import annotations

from datetime import datetime, timedelta
from hmac import compare_digest
from uuid import uuid4

from contexts.families.domain.errors import (
    InvitationLapsed,
    InvitationNotLapsed,
    InvitationNotOpen,
    TokenUnknown,
)
from contexts.families.domain.mailing import MAILS_MAX
from contexts.families.domain.status import InvitationStatus
from contexts.families.events import (
    Email,
    FamilyId,
    FamilyMemberInvitationAccepted,
    FamilyMemberInvitationExpired,
    FamilyMemberInvitationRevoked,
    FamilyMemberInvited,
    InvitationId,
    InvitationToken,
    Role,
    UserId,
)
from outbox_kernel import AggregateRoot, aggregate, applies

INVITATION_DAYS = 14
_TIME_TO_ANSWER = timedelta(days=INVITATION_DAYS)


@aggregate("family_member_invitation")
class FamilyMemberInvitation(AggregateRoot):
    """What an address is asked, until it is answered, taken back or too late.

    One whose time is over stays open until somebody ends it: nobody can accept it any more, but it can be sent again.
    """

    id: InvitationId
    family_id: FamilyId
    email: Email
    role: Role
    # The token itself is in the mail alone: who reads this row cannot accept for another.
    token_digest: str
    expires_at: datetime
    invited_by: UserId
    status: InvitationStatus = InvitationStatus.OPEN
    accepted_by: UserId | None = None
    # The last of them, which is as many as are ever asked for.
    mailed_at: tuple[datetime, ...] = ()

    @classmethod
    def invite(
        cls, family_id: FamilyId, email: Email, role: Role, *, by: UserId, now: datetime
    ) -> FamilyMemberInvitation:
        """Ask an address to join; the rules for whom are the family's."""
        invitation = cls.replay([])  # nothing has happened to it yet
        token, until = InvitationToken.new(), now + _TIME_TO_ANSWER
        invitation.record(
            FamilyMemberInvited(
                *(InvitationId(uuid4()), family_id, email, role, token, until, by),
                is_resend=False,
                occurred_at=now,
            )
        )
        return invitation

    @property
    def open_to(self) -> Email | None:
        """The address that may still join by it, None once it has ended: a family has one that is open to each."""
        return self.email if self.status is InvitationStatus.OPEN else None

    def resend(self, role: Role, *, by: UserId, now: datetime) -> None:
        """Ask again, with a new token and the whole time: only what the newest mail says holds."""
        self._check_open()
        token, until = InvitationToken.new(), now + _TIME_TO_ANSWER
        self.record(
            FamilyMemberInvited(
                *(self.id, self.family_id, self.email, role, token, until, by),
                is_resend=True,
                occurred_at=now,
            )
        )

    def accept(self, token: InvitationToken, user_id: UserId, *, now: datetime) -> None:
        """Say yes for whoever has the token."""
        if not compare_digest(self.token_digest, token.digest):
            raise TokenUnknown
        self._check_open()
        if self.has_lapsed(now):
            raise InvitationLapsed(self.id, self.expires_at)
        self.record(FamilyMemberInvitationAccepted(self.id, self.family_id, user_id, occurred_at=now))

    def revoke(self, by: UserId) -> None:
        """Take it back."""
        self._check_open()
        self.record(FamilyMemberInvitationRevoked(self.id, self.family_id, by))

    def expire(self, *, now: datetime) -> None:
        """Give up waiting for an answer."""
        self._check_open()
        if not self.has_lapsed(now):
            raise InvitationNotLapsed(self.id, self.expires_at)
        self.record(FamilyMemberInvitationExpired(self.id, self.family_id, occurred_at=now))

    def has_lapsed(self, now: datetime) -> bool:
        """Whether its time is over."""
        return now >= self.expires_at

    def _check_open(self) -> None:
        if self.status is not InvitationStatus.OPEN:
            raise InvitationNotOpen(self.id, self.status)

    @applies(FamilyMemberInvited)
    def _invited(self, event: FamilyMemberInvited) -> None:
        self.id = event.invitation_id
        self.family_id = event.family_id
        self.email = event.email
        self.role = event.role
        self.token_digest = event.token.digest
        self.expires_at = event.expires_at
        self.invited_by = event.invited_by_user_id
        self.mailed_at = (*self.mailed_at, event.occurred_at)[-MAILS_MAX:]

    @applies(FamilyMemberInvitationAccepted)
    def _accepted(self, event: FamilyMemberInvitationAccepted) -> None:
        self.status = InvitationStatus.ACCEPTED
        self.accepted_by = event.accepted_by_user_id

    @applies(FamilyMemberInvitationRevoked)
    def _revoked(self, _: FamilyMemberInvitationRevoked) -> None:
        self.status = InvitationStatus.REVOKED

    @applies(FamilyMemberInvitationExpired)
    def _expired(self, _: FamilyMemberInvitationExpired) -> None:
        self.status = InvitationStatus.EXPIRED
