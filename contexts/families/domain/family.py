"""The family, its members, and who may invite whom."""

from __future__ import annotations

from datetime import datetime
from uuid import uuid4

import attrs

from contexts.families.domain.errors import AlreadyMember, FamilyNotFound, NotAllowed, OwnerNotInvitable
from contexts.families.events import (
    Email,
    FamilyCreated,
    FamilyId,
    FamilyMemberJoined,
    FamilyName,
    Role,
    RoleName,
    UserId,
)
from outbox_kernel import AggregateRoot, aggregate


@attrs.define(slots=False, eq=False)
class Member:
    """Somebody who belongs to a family; only the family adds or changes one."""

    user_id: UserId
    email: Email
    role: Role
    joined_at: datetime


@aggregate("family")
class Family(AggregateRoot):
    """People who belong together, with one owner."""

    id: FamilyId
    name: FamilyName
    members: list[Member] = attrs.Factory(list)

    @classmethod
    def create(cls, name: FamilyName, owner: UserId, email: Email) -> Family:
        """Make a family, with whoever asks for it as its owner and first member."""
        family = cls(FamilyId(uuid4()), name)
        family.record(FamilyCreated(family.id, name, owner))
        family.admit(owner, email, Role(RoleName.OWNER))
        return family

    def has_member(self, user_id: UserId) -> bool:
        """Whether this user belongs to it."""
        return any(member.user_id == user_id for member in self.members)

    def check_manager(self, user_id: UserId) -> None:
        """Raise NotAllowed unless this user decides who is invited; to a stranger the family is not there."""
        if not self.has_member(user_id):
            raise FamilyNotFound(self.id)
        if not any(member.user_id == user_id and member.role.invites for member in self.members):
            raise NotAllowed(self.id, user_id)

    def check_invitation(self, email: Email, role: Role, by: UserId) -> None:
        """Raise the rule that speaks against this invitation, if any does."""
        self.check_manager(by)
        # An admin may invite admins. Nobody may invite an owner: a family has one, and passing it on is no invitation.
        if role.is_owner:
            raise OwnerNotInvitable
        if any(member.email == email for member in self.members):
            raise AlreadyMember(self.id)

    def admit(self, user_id: UserId, email: Email, role: Role) -> None:
        """Take somebody in, or raise AlreadyMember."""
        if any(user_id == member.user_id or email == member.email for member in self.members):
            raise AlreadyMember(self.id)
        joined = FamilyMemberJoined(self.id, user_id, role)
        self.members.append(Member(user_id, email, role, joined.occurred_at))
        self.record(joined)
