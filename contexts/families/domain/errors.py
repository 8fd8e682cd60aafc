"""The refusals of this context, a sentence each.

What the family or the invitation has become does not allow is a Conflict, as an illegal transition is in messaging: the
same wish was in order before, or will be, so whoever asks should look again. What is never in order, such as a second
owner, is a broken rule.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from math import ceil

from contexts.families.domain.status import InvitationStatus
from contexts.families.events import FamiliesError, FamilyId, InvitationId, UserId
from outbox_kernel import Conflict, Forbidden, NotFound


class FamilyNotFound(FamiliesError, NotFound):
    """There is no such family; or who asks does not belong to it, which is not told apart."""

    kind = "family_not_found"

    def __init__(self, family_id: FamilyId) -> None:
        self.family_id = family_id
        super().__init__(f"there is no family {family_id.value}: the id is wrong, or another's")


class NotAllowed(FamiliesError, Forbidden):
    """Who asks does not decide about the members of this family."""

    kind = "not_allowed"

    def __init__(self, family_id: FamilyId, user_id: UserId) -> None:
        self.family_id, self.user_id = family_id, user_id
        super().__init__(
            "only the owner and the admins of a family decide who is invited to it: ask one of them"
        )


class AlreadyMember(FamiliesError, Conflict):
    """Who is invited, or accepts, belongs to the family."""

    kind = "already_member"

    def __init__(self, family_id: FamilyId) -> None:
        self.family_id = family_id
        super().__init__("this person is a member of the family already: there is nothing to do")


class OwnerNotInvitable(FamiliesError):
    """A family has one owner, who made it."""

    kind = "owner_not_invitable"

    def __init__(self) -> None:
        super().__init__("a family has one owner, who created it: invite an admin or a member")


class InvitedMeanwhile(FamiliesError, Conflict):
    """Somebody else invited the same address at the same moment, and was first."""

    kind = "invited_meanwhile"

    def __init__(self) -> None:
        super().__init__(
            "somebody has invited this address to the family at the same moment: "
            "look at that invitation, and send it again if it is not enough"
        )


class TooManyMails(FamiliesError, Conflict):
    """The address was sent as many mails as nobody should be in so short a time."""

    kind = "too_many_mails"

    def __init__(self, number: int, period: timedelta, time_left: timedelta) -> None:
        self.time_left = time_left
        super().__init__(
            f"this address was sent {number} invitations within {_in_minutes(period)}: wait {_in_minutes(time_left)} "
            "before you send the next one"
        )


def _in_minutes(time: timedelta) -> str:
    minutes = ceil(time / timedelta(minutes=1))
    return f"{minutes} minute{'' if minutes == 1 else 's'}"


class InvitationNotFound(FamiliesError, NotFound):
    """There is no such invitation; or it is to a family that who asks does not belong to, which is not told apart."""

    kind = "invitation_not_found"

    def __init__(self, invitation_id: InvitationId) -> None:
        self.invitation_id = invitation_id
        super().__init__(f"there is no invitation {invitation_id.value}: the id is wrong, or another's")


class TokenUnknown(FamiliesError, NotFound):
    """No invitation has this token, or none any more."""

    kind = "token_unknown"

    def __init__(self) -> None:
        super().__init__("no invitation has this token: a newer mail may have replaced it, take its link")


class InvitationNotOpen(FamiliesError, Conflict):
    """It has ended already."""

    kind = "invitation_not_open"

    def __init__(self, invitation_id: InvitationId, status: InvitationStatus) -> None:
        self.invitation_id, self.status = invitation_id, status
        super().__init__(f"this invitation is {status.value} already: if it still matters, ask for a new one")


class InvitationLapsed(FamiliesError, Conflict):
    """Its time is over."""

    kind = "invitation_lapsed"

    def __init__(self, invitation_id: InvitationId, expires_at: datetime) -> None:
        self.invitation_id, self.expires_at = invitation_id, expires_at
        super().__init__(f"this invitation held until {expires_at:%Y-%m-%d %H:%M} UTC: ask for a new one")


class InvitationNotLapsed(FamiliesError, Conflict):
    """It still has time."""

    kind = "invitation_not_lapsed"

    def __init__(self, invitation_id: InvitationId, expires_at: datetime) -> None:
        self.invitation_id, self.expires_at = invitation_id, expires_at
        super().__init__(
            f"this invitation holds until {expires_at:%Y-%m-%d %H:%M} UTC: wait until then, or revoke it"
        )
