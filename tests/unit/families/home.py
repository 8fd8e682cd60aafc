"""A family in a store, and what can be asked there."""

from __future__ import annotations

from uuid import UUID, uuid4

import attrs

from contexts.families.domain import Family, FamilyMemberInvitation
from contexts.families.events import Email, FamilyMemberInvited, FamilyName, RoleName, UserId
from contexts.families.use_cases import (
    AcceptFamilyMemberInvitation,
    AcceptFamilyMemberInvitationHandler,
    ExpireFamilyMemberInvitation,
    ExpireFamilyMemberInvitationHandler,
    InvitationSent,
    InviteFamilyMemberByEmail,
    InviteFamilyMemberByEmailHandler,
    ResendFamilyMemberInvitation,
    ResendFamilyMemberInvitationHandler,
    RevokeFamilyMemberInvitation,
    RevokeFamilyMemberInvitationHandler,
)
from outbox_kernel.testing import InMemoryStore
from tests.unit.families.in_memory import InMemoryFamiliesUnitOfWork

BO = "bo@example.org"


@attrs.define
class Home:
    """A family in a store, with its owner, and what can be done there."""

    store: InMemoryStore = attrs.Factory(InMemoryStore)
    owner: UUID = attrs.Factory(uuid4)
    family_id: UUID = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        family = Family.create(FamilyName("The Lovelaces"), UserId(self.owner), Email("ada@example.org"))
        self.store.put(family)
        self.family_id = family.id.value

    def uow(self) -> InMemoryFamiliesUnitOfWork:
        return InMemoryFamiliesUnitOfWork(self.store)

    def command(
        self, email: str = BO, by: UUID | None = None, **options: RoleName
    ) -> InviteFamilyMemberByEmail:
        return InviteFamilyMemberByEmail(self.family_id, email, by or self.owner, **options)

    async def invite(self, email: str = BO, by: UUID | None = None, **options: RoleName) -> InvitationSent:
        handler = InviteFamilyMemberByEmailHandler(self.uow())
        return await handler.handle(self.command(email, by, **options))

    async def resend(self, invitation_id: UUID, by: UUID | None = None) -> InvitationSent:
        command = ResendFamilyMemberInvitation(invitation_id, by or self.owner)
        return await ResendFamilyMemberInvitationHandler(self.uow()).handle(command)

    async def accept(self, user_id: UUID, token: str | None = None) -> UUID:
        command = AcceptFamilyMemberInvitation(token or self.tokens[-1], user_id)
        return await AcceptFamilyMemberInvitationHandler(self.uow()).handle(command)

    async def revoke(self, invitation_id: UUID, by: UUID | None = None) -> None:
        command = RevokeFamilyMemberInvitation(invitation_id, by or self.owner)
        await RevokeFamilyMemberInvitationHandler(self.uow()).handle(command)

    async def expire(self, invitation_id: UUID) -> None:
        command = ExpireFamilyMemberInvitation(invitation_id)
        await ExpireFamilyMemberInvitationHandler(self.uow()).handle(command)

    @property
    def tokens(self) -> list[str]:
        """The tokens that were mailed, oldest first."""
        return [event.token.value for event in self.store.events if isinstance(event, FamilyMemberInvited)]

    def invitation(self, invitation_id: UUID) -> FamilyMemberInvitation:
        found = self.store.get(FamilyMemberInvitation, invitation_id)
        assert found is not None
        return found

    @property
    def roles(self) -> dict[UUID, RoleName]:
        family = self.store.get(Family, self.family_id)
        assert family is not None
        return {member.user_id.value: member.role.value for member in family.members}
