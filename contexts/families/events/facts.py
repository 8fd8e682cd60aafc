"""What has happened in this context, as others read it: in camelCase, each value object as `{"value": …}` (K8)."""

from __future__ import annotations

from datetime import datetime

from contexts.families.events.values import (
    Email,
    FamilyId,
    FamilyName,
    InvitationId,
    InvitationToken,
    Role,
    UserId,
)
from outbox_kernel import DomainEvent, event, sensitive


@event(layout="camel")
class FamilyCreated(DomainEvent):
    """Somebody has a family from now on."""

    family_id: FamilyId
    name: FamilyName
    owner_user_id: UserId


@event(layout="camel")
class FamilyMemberJoined(DomainEvent):
    """Somebody belongs to a family from now on; its owner does from the beginning."""

    family_id: FamilyId
    user_id: UserId
    role: Role


@event(layout="camel")
class FamilyMemberInvited(DomainEvent):
    """An address is asked to join, for the first time or again: whoever sends mail has all that it takes.

    The token of a resend replaces those before, and so do its role and its end.
    """

    invitation_id: InvitationId
    family_id: FamilyId
    # Whoever is invited has no id of a user's yet.
    email: Email = sensitive(subject="invitation_id", forgotten=Email("forgotten@forgotten.invalid"))
    role: Role
    # No digest is kept of it, so that it opens nothing.
    token: InvitationToken = sensitive(subject="invitation_id", forgotten=InvitationToken("_" * 43))
    expires_at: datetime
    invited_by_user_id: UserId
    is_resend: bool


@event(layout="camel")
class FamilyMemberInvitationAccepted(DomainEvent):
    """Whoever had the token has said yes."""

    invitation_id: InvitationId
    family_id: FamilyId
    accepted_by_user_id: UserId


@event(layout="camel")
class FamilyMemberInvitationRevoked(DomainEvent):
    """The family has taken an invitation back."""

    invitation_id: InvitationId
    family_id: FamilyId
    revoked_by_user_id: UserId


@event(layout="camel")
class FamilyMemberInvitationExpired(DomainEvent):
    """Nobody has answered in time."""

    invitation_id: InvitationId
    family_id: FamilyId
