"""How a family comes to be."""

from __future__ import annotations

from uuid import UUID

import attrs

from contexts.families.domain import Family, email_given
from contexts.families.events import FamilyName, UserId
from contexts.families.use_cases.ports import FamiliesUnitOfWork


@attrs.frozen
class CreateFamily:
    """Make a family of one's own."""

    name: str
    owner_user_id: UUID
    owner_email: str = attrs.field(repr=lambda _: "***")


@attrs.frozen
class CreateFamilyHandler:
    """Makes families."""

    uow: FamiliesUnitOfWork

    async def handle(self, command: CreateFamily) -> UUID:
        """Make the family with its owner as its first member, and return its id."""
        name, owner = FamilyName(command.name), UserId(command.owner_user_id)
        family = Family.create(name, owner, email_given(command.owner_email))
        async with self.uow as uow:
            uow.families.add(family)
            await uow.commit()
        return family.id.value
