"""The use cases of families on PostgreSQL: each change commits with its events, and no address is asked twice (X3)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from lagom import Container

from contexts.families.domain import AlreadyMember, Family, InvitationNotOpen, TokenUnknown
from contexts.families.events import Email, FamilyId, FamilyName, Role, RoleName, UserId
from contexts.families.persistence import SqlFamiliesUnitOfWork
from contexts.families.use_cases import (
    AcceptFamilyMemberInvitation,
    AcceptFamilyMemberInvitationHandler,
    ExpireFamilyMemberInvitation,
    ExpireFamilyMemberInvitationHandler,
    InviteFamilyMemberByEmail,
    InviteFamilyMemberByEmailHandler,
    ResendFamilyMemberInvitation,
    ResendFamilyMemberInvitationHandler,
    RevokeFamilyMemberInvitation,
    RevokeFamilyMemberInvitationHandler,
)
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel.testing import FrozenClock, using_clock
from tests.integration.families.conftest import Home
from tests.opening import tokens_sent

BO = "bo@example.org"

STREAM = """
SELECT aggregate_version, event_type, payload->'isResend' FROM outbox_events
WHERE aggregate_id = :id ORDER BY position
"""
MEMBERS = "SELECT user_id, email, role FROM family_members WHERE family_id = :id ORDER BY joined_at"


async def invite(container: Container, home: Home) -> UUID:
    command = InviteFamilyMemberByEmail(home.family_id, BO, home.owner)
    return (await container[InviteFamilyMemberByEmailHandler].handle(command)).invitation_id


async def tokens_of(container: Container, invitation_id: UUID) -> list[str]:
    return await tokens_sent(container[Settings].required_database_url, invitation_id)


async def newest_token(container: Container, invitation_id: UUID) -> str:
    return (await tokens_of(container, invitation_id))[-1]


async def accept(container: Container, token: str, user_id: UUID) -> None:
    await container[AcceptFamilyMemberInvitationHandler].handle(AcceptFamilyMemberInvitation(token, user_id))


async def test_families_and_their_members_are_changed_in_one_commit(
    container: Container, rows: Any, home: Home
) -> None:
    """K2: their keys are value objects, which have no order of their own, and a flush sorts rows by them."""
    async with container[SqlFamiliesUnitOfWork] as uow:
        other = Family.create(FamilyName("The Byrons"), UserId(uuid4()), Email("anne@example.org"))
        uow.families.add(other)
        family = await uow.families.get(FamilyId(home.family_id))
        assert family is not None
        family.admit(UserId(uuid4()), Email(BO), Role(RoleName.MEMBER))
        await uow.commit()
        for each in (family, other):
            each.name = FamilyName("The Kings")
            for member in each.members:
                member.role = Role(RoleName.ADMIN)
        await uow.commit()
    roles = [role for _, _, role in await rows(MEMBERS, id=home.family_id)]
    assert roles == ["admin", "admin"]


async def test_a_family_commits_with_its_owner_and_their_events(rows: Any, home: Home) -> None:
    assert await rows("SELECT name, version FROM families WHERE id = :id", id=home.family_id) == [
        ("The Lovelaces", 2)
    ]
    assert await rows(MEMBERS, id=home.family_id) == [(home.owner, "ada@example.org", "owner")]
    assert await rows(STREAM, id=home.family_id) == [
        (1, "FamilyCreated", None),
        (2, "FamilyMemberJoined", None),
    ]


async def test_from_the_invitation_to_the_member(container: Container, rows: Any, home: Home) -> None:
    invitation_id, bo = await invite(container, home), uuid4()
    assert await invite(container, home) == invitation_id
    command = ResendFamilyMemberInvitation(invitation_id, home.owner)
    await container[ResendFamilyMemberInvitationHandler].handle(command)
    tokens = await tokens_of(container, invitation_id)
    for old in tokens[:-1]:
        with pytest.raises(TokenUnknown):
            await accept(container, old, bo)
    await accept(container, tokens[-1], bo)
    with pytest.raises(InvitationNotOpen):
        await accept(container, tokens[-1], uuid4())
    with pytest.raises(AlreadyMember):
        await invite(container, home)

    assert await rows(STREAM, id=invitation_id) == [
        (1, "FamilyMemberInvited", False),
        (2, "FamilyMemberInvited", True),
        (3, "FamilyMemberInvited", True),
        (4, "FamilyMemberInvitationAccepted", None),
    ]
    assert (await rows(MEMBERS, id=home.family_id))[1] == (bo, BO, "member")
    assert (await rows(STREAM, id=home.family_id))[2] == (3, "FamilyMemberJoined", None)
    assert await rows(
        "SELECT status, accepted_by FROM family_member_invitations WHERE id = :id", id=invitation_id
    ) == [("accepted", bo)]


async def test_the_row_keeps_no_token(container: Container, rows: Any, home: Home) -> None:
    invitation_id = await invite(container, home)
    token = await newest_token(container, invitation_id)
    [(row,)] = await rows(
        "SELECT row_to_json(found)::text FROM family_member_invitations AS found WHERE id = :id",
        id=invitation_id,
    )
    assert token not in row


async def test_an_address_is_asked_anew_when_its_invitation_has_ended(
    container: Container, rows: Any, home: Home
) -> None:
    revoked = await invite(container, home)
    await container[RevokeFamilyMemberInvitationHandler].handle(
        RevokeFamilyMemberInvitation(revoked, home.owner)
    )
    expired = await invite(container, home)
    with using_clock(FrozenClock()) as clock:
        clock.set(clock.now() + timedelta(days=36_500))
        await container[ExpireFamilyMemberInvitationHandler].handle(ExpireFamilyMemberInvitation(expired))
    assert len({revoked, expired, await invite(container, home)}) == 3
    assert await rows(
        "SELECT status, count(*) FROM family_member_invitations WHERE family_id = :id GROUP BY status ORDER BY status",
        id=home.family_id,
    ) == [("expired", 1), ("open", 1), ("revoked", 1)]
