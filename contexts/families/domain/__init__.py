"""Families and invitations, and their rules."""

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
)
from contexts.families.domain.family import Family, Member
from contexts.families.domain.invitation import INVITATION_DAYS, FamilyMemberInvitation
from contexts.families.domain.status import InvitationStatus

__all__ = [
    "INVITATION_DAYS",
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
]
