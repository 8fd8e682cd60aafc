"""What this context publishes: the only room that another context may import."""

from contexts.families.events.errors import (
    FamiliesError,
    InvalidEmail,
    InvalidId,
    InvalidName,
    InvalidRole,
    InvalidToken,
    InvalidValue,
)
from contexts.families.events.facts import (
    FamilyCreated,
    FamilyMemberInvitationAccepted,
    FamilyMemberInvitationExpired,
    FamilyMemberInvitationRevoked,
    FamilyMemberInvited,
    FamilyMemberJoined,
)
from contexts.families.events.values import (
    EMAIL_CHARACTERS_MAX,
    FAMILY_NAME_CHARACTERS_MAX,
    Email,
    FamilyId,
    FamilyName,
    InvitationId,
    InvitationToken,
    Role,
    RoleName,
    UserId,
)

__all__ = [
    "EMAIL_CHARACTERS_MAX",
    "FAMILY_NAME_CHARACTERS_MAX",
    "Email",
    "FamiliesError",
    "FamilyCreated",
    "FamilyId",
    "FamilyMemberInvitationAccepted",
    "FamilyMemberInvitationExpired",
    "FamilyMemberInvitationRevoked",
    "FamilyMemberInvited",
    "FamilyMemberJoined",
    "FamilyName",
    "InvalidEmail",
    "InvalidId",
    "InvalidName",
    "InvalidRole",
    "InvalidToken",
    "InvalidValue",
    "InvitationId",
    "InvitationToken",
    "Role",
    "RoleName",
    "UserId",
]
