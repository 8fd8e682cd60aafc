"""What this context can be asked to do: a command each, with its handler."""

from contexts.families.use_cases.answering import (
    AcceptFamilyMemberInvitation,
    AcceptFamilyMemberInvitationHandler,
    ExpireFamilyMemberInvitation,
    ExpireFamilyMemberInvitationHandler,
)
from contexts.families.use_cases.founding import CreateFamily, CreateFamilyHandler
from contexts.families.use_cases.inviting import (
    InvitationSent,
    InviteFamilyMemberByEmail,
    InviteFamilyMemberByEmailHandler,
    ResendFamilyMemberInvitation,
    ResendFamilyMemberInvitationHandler,
    RevokeFamilyMemberInvitation,
    RevokeFamilyMemberInvitationHandler,
)
from contexts.families.use_cases.looking import (
    FindFamily,
    FindFamilyHandler,
    FindFamilyMemberInvitation,
    FindFamilyMemberInvitationHandler,
)
from contexts.families.use_cases.ports import Families, FamiliesUnitOfWork, Invitations

__all__ = [
    "AcceptFamilyMemberInvitation",
    "AcceptFamilyMemberInvitationHandler",
    "CreateFamily",
    "CreateFamilyHandler",
    "ExpireFamilyMemberInvitation",
    "ExpireFamilyMemberInvitationHandler",
    "Families",
    "FamiliesUnitOfWork",
    "FindFamily",
    "FindFamilyHandler",
    "FindFamilyMemberInvitation",
    "FindFamilyMemberInvitationHandler",
    "InvitationSent",
    "Invitations",
    "InviteFamilyMemberByEmail",
    "InviteFamilyMemberByEmailHandler",
    "ResendFamilyMemberInvitation",
    "ResendFamilyMemberInvitationHandler",
    "RevokeFamilyMemberInvitation",
    "RevokeFamilyMemberInvitationHandler",
]
