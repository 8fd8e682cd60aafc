"""Many who do one thing at once: one invitation, one stream without gaps, and no error that nobody expects (X3)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from uuid import uuid4

import pytest
from lagom import Container
from sqlalchemy.ext.asyncio import async_sessionmaker

from contexts.families.domain import (
    MAILS_MAX,
    AlreadyMember,
    InvitationNotOpen,
    InvitedMeanwhile,
    TooManyMails,
)
from contexts.families.persistence import SqlFamiliesUnitOfWork
from contexts.families.use_cases import (
    AcceptFamilyMemberInvitation,
    AcceptFamilyMemberInvitationHandler,
    InvitationSent,
    InviteFamilyMemberByEmail,
    InviteFamilyMemberByEmailHandler,
    ResendFamilyMemberInvitation,
    ResendFamilyMemberInvitationHandler,
    RevokeFamilyMemberInvitation,
    RevokeFamilyMemberInvitationHandler,
)
from outbox_kernel.errors import ConcurrencyError
from tests.integration.families.conftest import Home
from tests.integration.families.stepping import SteppingUnitOfWork
from tests.integration.families.test_families import (
    BO,
    MEMBERS,
    STREAM,
    accept,
    invite,
    newest_token,
    tokens_of,
)

AT_ONCE = 200
INVITATIONS = "SELECT id, version, status FROM family_member_invitations WHERE family_id = :id"
STREAMS = """
SELECT aggregate_id, aggregate_version, (payload->>'isResend')::boolean FROM outbox_events
WHERE event_type = 'FamilyMemberInvited' AND payload->'familyId'->>'value' = :family ORDER BY position
"""


class InStep(SqlFamiliesUnitOfWork):
    """Commits for the first time only when all others are about to: nobody has seen the others' rows."""

    def __init__(self, container: Container, barrier: asyncio.Barrier) -> None:
        super().__init__(container[async_sessionmaker])
        self._barrier: asyncio.Barrier | None = barrier

    async def commit(self) -> None:
        barrier, self._barrier = self._barrier, None
        if barrier is not None:
            await barrier.wait()
        await super().commit()


class Overtaken(SteppingUnitOfWork):
    """Lets somebody else act before one of its steps."""

    def __init__(self, container: Container, at: int, act: Callable[[], Awaitable[None]]) -> None:
        super().__init__(container)
        self._steps_left, self._act = at, act

    async def before(self) -> None:
        self._steps_left -= 1
        if self._steps_left == 0:
            await self._act()


async def all_of(*attempts: Coroutine[Any, Any, Any]) -> list[Any]:
    return await asyncio.gather(*attempts, return_exceptions=True)


async def test_of_many_who_invite_one_address_one_invites_and_each_other_resends_or_is_told(
    container: Container, rows: Any, home: Home
) -> None:
    command = InviteFamilyMemberByEmail(home.family_id, BO, home.owner)
    outcomes = await all_of(
        *(container[InviteFamilyMemberByEmailHandler].handle(command) for _ in range(AT_ONCE))
    )

    sent = [each for each in outcomes if isinstance(each, InvitationSent)]
    refused = Counter(type(each) for each in outcomes if isinstance(each, BaseException))
    assert set(refused) <= {InvitedMeanwhile, ConcurrencyError, TooManyMails}
    assert len(sent) + refused.total() == AT_ONCE
    assert len(sent) <= MAILS_MAX

    [(invitation_id, version, status)] = await rows(INVITATIONS, id=home.family_id)
    assert (version, status) == (len(sent), "open")
    assert {each.invitation_id for each in sent} == {invitation_id}
    assert sorted(each.is_resend for each in sent) == [False, *[True] * (len(sent) - 1)]
    assert await rows(STREAMS, family=str(home.family_id)) == [
        (invitation_id, number, number > 1) for number in range(1, len(sent) + 1)
    ]
    tokens = await tokens_of(container, invitation_id)
    await container[AcceptFamilyMemberInvitationHandler].handle(
        AcceptFamilyMemberInvitation(tokens[-1], uuid4())
    )
    assert len(await rows(MEMBERS, id=home.family_id)) == 2


async def test_of_two_who_found_no_invitation_one_invites_and_the_other_is_told(
    container: Container, rows: Any, home: Home
) -> None:
    barrier = asyncio.Barrier(2)
    command = InviteFamilyMemberByEmail(home.family_id, BO, home.owner)
    outcomes = await all_of(
        *(InviteFamilyMemberByEmailHandler(InStep(container, barrier)).handle(command) for _ in range(2))
    )
    assert Counter(map(type, outcomes)) == {InvitationSent: 1, InvitedMeanwhile: 1}
    assert len(await rows(STREAMS, family=str(home.family_id))) == 1


async def test_of_two_who_send_one_again_one_does_and_the_other_is_told(
    container: Container, rows: Any, home: Home
) -> None:
    invitation_id, barrier = await invite(container, home), asyncio.Barrier(2)
    command = ResendFamilyMemberInvitation(invitation_id, home.owner)
    outcomes = await all_of(
        *(ResendFamilyMemberInvitationHandler(InStep(container, barrier)).handle(command) for _ in range(2))
    )
    assert Counter(map(type, outcomes)) == {InvitationSent: 1, ConcurrencyError: 1}
    assert [number for number, *_ in await rows(STREAM, id=invitation_id)] == [1, 2]


async def test_of_two_who_accept_with_one_token_one_joins(
    container: Container, rows: Any, home: Home
) -> None:
    token, barrier = await newest_token(container, await invite(container, home)), asyncio.Barrier(2)
    outcomes = await all_of(
        *(
            AcceptFamilyMemberInvitationHandler(InStep(container, barrier)).handle(
                AcceptFamilyMemberInvitation(token, uuid4())
            )
            for _ in range(2)
        )
    )
    assert sorted(isinstance(each, InvitationNotOpen) for each in outcomes) == [False, True]
    assert home.family_id in outcomes
    assert len(await rows(MEMBERS, id=home.family_id)) == 2


async def test_two_who_join_one_family_at_once_are_both_in(
    container: Container, rows: Any, home: Home
) -> None:
    tokens = []
    for email in (BO, "carol@example.org"):
        command = InviteFamilyMemberByEmail(home.family_id, email, home.owner)
        sent = await container[InviteFamilyMemberByEmailHandler].handle(command)
        tokens.append(await newest_token(container, sent.invitation_id))
    barrier = asyncio.Barrier(2)
    await asyncio.gather(
        *(
            AcceptFamilyMemberInvitationHandler(InStep(container, barrier)).handle(
                AcceptFamilyMemberInvitation(token, uuid4())
            )
            for token in tokens
        )
    )
    assert len(await rows(MEMBERS, id=home.family_id)) == 3
    assert [number for number, *_ in await rows(STREAM, id=home.family_id)] == [1, 2, 3, 4]


async def test_who_takes_back_wins_over_who_sends_again_at_the_same_moment(
    container: Container, rows: Any, home: Home
) -> None:
    invitation_id, barrier = await invite(container, home), asyncio.Barrier(2)
    await all_of(
        ResendFamilyMemberInvitationHandler(InStep(container, barrier)).handle(
            ResendFamilyMemberInvitation(invitation_id, home.owner)
        ),
        RevokeFamilyMemberInvitationHandler(InStep(container, barrier)).handle(
            RevokeFamilyMemberInvitation(invitation_id, home.owner)
        ),
    )
    assert (await rows(STREAM, id=invitation_id))[-1][1] == "FamilyMemberInvitationRevoked"
    assert await rows(INVITATIONS, id=home.family_id) == [
        (invitation_id, len(await rows(STREAM, id=invitation_id)), "revoked")
    ]


@pytest.mark.parametrize(
    ("at", "told"), [(1, AlreadyMember), (2, AlreadyMember), (3, ConcurrencyError), (4, ConcurrencyError)]
)
async def test_who_accepts_while_being_invited_again_is_a_member_and_not_invited(
    container: Container, rows: Any, home: Home, at: int, told: type[Exception]
) -> None:
    invitation_id = await invite(container, home)
    token = await newest_token(container, invitation_id)
    uow = Overtaken(container, at, lambda: accept(container, token, uuid4()))
    with pytest.raises(told):
        await InviteFamilyMemberByEmailHandler(uow).handle(
            InviteFamilyMemberByEmail(home.family_id, BO, home.owner)
        )
    assert await rows(INVITATIONS, id=home.family_id) == [(invitation_id, 2, "accepted")]
    assert len(await rows(MEMBERS, id=home.family_id)) == 2
