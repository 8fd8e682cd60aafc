"""Families and invitations, and their rules."""

from contexts.families.domain.addresses import email_given
from contexts.families.domain.errors import (
    AlreadyMember,
    FamilyNotFound,
    InvitationLapsed,
    InvitationNotFound,
    InvitationNotLapsed,
    InvitationNotOpen,
    InvitedMeanwhile,
    NotAllowed,
    OwnerNotInvitable,
    TokenUnknown,
    TooManyMails,
)
from contexts.families.domain.family import Family, Member
from contexts.families.domain.invitation import INVITATION_DAYS, FamilyMemberInvitation
from contexts.families.domain.mailing import MAILS_MAX, MAILS_PERIOD, check_mails
from contexts.families.domain.status import InvitationStatus

__all__ = [
    "INVITATION_DAYS",
    "MAILS_MAX",
    "MAILS_PERIOD",
    "AlreadyMember",
    "Family",
    "FamilyMemberInvitation",
    "FamilyNotFound",
    "InvitationLapsed",
    "InvitationNotFound",
    "InvitationNotLapsed",
    "InvitationNotOpen",
    "InvitationStatus",
    "InvitedMeanwhile",
    "Member",
    "NotAllowed",
    "OwnerNotInvitable",
    "TokenUnknown",
    "TooManyMails",
    "check_mails",
    "email_given",
]
