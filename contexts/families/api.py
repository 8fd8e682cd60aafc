"""Families by GraphQL. Whoever asks is the user whom their token names."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import strawberry
from strawberry.types import Info

from contexts.families.domain import Family, FamilyMemberInvitation, InvitationStatus
from contexts.families.events import RoleName
from contexts.families.use_cases import (
    AcceptFamilyMemberInvitation,
    AcceptFamilyMemberInvitationHandler,
    CreateFamily,
    CreateFamilyHandler,
    FindFamily,
    FindFamilyHandler,
    FindFamilyMemberInvitation,
    FindFamilyMemberInvitationHandler,
    InvitationSent,
    InviteFamilyMemberByEmail,
    InviteFamilyMemberByEmailHandler,
    ResendFamilyMemberInvitation,
    ResendFamilyMemberInvitationHandler,
    RevokeFamilyMemberInvitation,
    RevokeFamilyMemberInvitationHandler,
)
from outbox_kernel.infrastructure.http import Principal
from outbox_kernel.infrastructure.http.graphql import GraphQLContext, provided

Asked = Info[GraphQLContext, None]

# What they are called in the schema, beside what other contexts bring.
strawberry.enum(RoleName, name="FamilyRole")
strawberry.enum(InvitationStatus, name="FamilyMemberInvitationStatus")


def _user_id(info: Asked) -> UUID:
    return provided(info, Principal).uuid


@strawberry.type(name="FamilyMember")
class MemberType:
    """Somebody who belongs to a family."""

    user_id: UUID
    email: str
    role: RoleName
    joined_at: datetime


@strawberry.type(name="Family")
class FamilyType:
    """People who belong together."""

    id: UUID
    name: str
    members: list[MemberType]

    @classmethod
    def of(cls, family: Family) -> FamilyType:
        """Show a family."""
        members = [
            MemberType(
                user_id=member.user_id.value,
                email=member.email.value,
                role=member.role.value,
                joined_at=member.joined_at,
            )
            for member in family.members
        ]
        return cls(id=family.id.value, name=family.name.value, members=members)


@strawberry.type(name="FamilyMemberInvitation")
class InvitationType:
    """What an address was asked."""

    id: UUID
    family_id: UUID
    email: str
    role: RoleName
    status: InvitationStatus
    expires_at: datetime

    @classmethod
    def of(cls, invitation: FamilyMemberInvitation) -> InvitationType:
        """Show an invitation."""
        return cls(
            id=invitation.id.value,
            family_id=invitation.family_id.value,
            email=invitation.email.value,
            role=invitation.role.value,
            status=invitation.status,
            expires_at=invitation.expires_at,
        )


@strawberry.type(name="InvitationSent")
class InvitationSentType:
    """An invitation is on its way; the token is in the mail alone."""

    invitation_id: UUID
    expires_at: datetime
    is_resend: bool

    @classmethod
    def of(cls, sent: InvitationSent) -> InvitationSentType:
        """Show what was sent."""
        return cls(invitation_id=sent.invitation_id, expires_at=sent.expires_at, is_resend=sent.is_resend)


@strawberry.input
class CreateFamilyInput:
    """The family to make."""

    name: str
    owner_email: str


@strawberry.input
class InviteFamilyMemberByEmailInput:
    """Whom to ask, and as what."""

    family_id: UUID
    email: str
    role: RoleName = RoleName.MEMBER


@strawberry.type
class Query:
    """What can be looked at."""

    @strawberry.field
    async def family(self, info: Asked, id: UUID) -> FamilyType | None:
        """One's own family."""
        use_case = provided(info, FindFamilyHandler)
        return FamilyType.of(await use_case.handle(FindFamily(id, _user_id(info))))

    @strawberry.field
    async def family_member_invitation(self, info: Asked, id: UUID) -> InvitationType | None:
        """An invitation, for those who decide who is invited."""
        use_case = provided(info, FindFamilyMemberInvitationHandler)
        return InvitationType.of(await use_case.handle(FindFamilyMemberInvitation(id, _user_id(info))))


@strawberry.type
class Mutation:
    """What can be done; each may be null, so that a refusal of one does not hide what another has done."""

    @strawberry.mutation
    async def create_family(self, info: Asked, input: CreateFamilyInput) -> FamilyType | None:
        """Make a family of one's own."""
        user_id = _user_id(info)
        command = CreateFamily(input.name, user_id, input.owner_email)
        family_id = await provided(info, CreateFamilyHandler).handle(command)
        family = await provided(info, FindFamilyHandler).handle(FindFamily(family_id, user_id))
        return FamilyType.of(family)

    @strawberry.mutation
    async def invite_family_member_by_email(
        self, info: Asked, input: InviteFamilyMemberByEmailInput
    ) -> InvitationSentType | None:
        """Invite an address, or send its open invitation again."""
        command = InviteFamilyMemberByEmail(input.family_id, input.email, _user_id(info), input.role)
        return InvitationSentType.of(await provided(info, InviteFamilyMemberByEmailHandler).handle(command))

    @strawberry.mutation
    async def resend_family_member_invitation(
        self, info: Asked, invitation_id: UUID
    ) -> InvitationSentType | None:
        """Send an invitation again, with a new token and the whole time to answer."""
        command = ResendFamilyMemberInvitation(invitation_id, _user_id(info))
        return InvitationSentType.of(
            await provided(info, ResendFamilyMemberInvitationHandler).handle(command)
        )

    @strawberry.mutation
    async def accept_family_member_invitation(self, info: Asked, token: str) -> FamilyType | None:
        """Join a family, by the token from the mail."""
        user_id = _user_id(info)
        family_id = await provided(info, AcceptFamilyMemberInvitationHandler).handle(
            AcceptFamilyMemberInvitation(token, user_id)
        )
        family = await provided(info, FindFamilyHandler).handle(FindFamily(family_id, user_id))
        return FamilyType.of(family)

    @strawberry.mutation
    async def revoke_family_member_invitation(self, info: Asked, invitation_id: UUID) -> UUID | None:
        """Take an invitation back, and return its id."""
        command = RevokeFamilyMemberInvitation(invitation_id, _user_id(info))
        await provided(info, RevokeFamilyMemberInvitationHandler).handle(command)
        return invitation_id
