"""The port of the use cases in memory: the same promises as on PostgreSQL, without a database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from contexts.families.domain import Family, FamilyMemberInvitation, InvitedMeanwhile
from contexts.families.events import Email, FamilyId, InvitationToken, UserId
from outbox_kernel.testing import InMemoryRepository, InMemoryUnitOfWork


class InMemoryInvitations(InMemoryRepository[FamilyMemberInvitation]):
    async def open_to(self, family_id: FamilyId, email: Email) -> FamilyMemberInvitation | None:
        return await self.find(lambda each: (each.family_id, each.open_to) == (family_id, email))

    async def by_token(self, token: InvitationToken) -> FamilyMemberInvitation | None:
        return await self.find(lambda each: each.token_digest == token.digest)

    async def mailed(self, email: Email, family_id: FamilyId, by: UserId) -> Sequence[datetime]:
        return [
            moment
            for each in await self.list()
            if each.email == email and (each.family_id == family_id or each.invited_by == by)
            for moment in each.mailed_at
        ]


class InMemoryFamiliesUnitOfWork(InMemoryUnitOfWork):
    unique = {FamilyMemberInvitation: {("family_id", "open_to"): InvitedMeanwhile}}  # noqa: RUF012 - a constant of the class

    @property
    def families(self) -> InMemoryRepository[Family]:
        return InMemoryRepository(self, Family)

    @property
    def invitations(self) -> InMemoryInvitations:
        return InMemoryInvitations(self, FamilyMemberInvitation)
