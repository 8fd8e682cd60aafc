"""The use cases of families, without a database (X3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from contexts.families.domain import (
    INVITATION_DAYS,
    AlreadyMember,
    FamilyMemberInvitation,
    FamilyNotFound,
    InvitationLapsed,
    InvitationNotFound,
    InvitationNotLapsed,
    InvitationNotOpen,
    InvitationStatus,
    InvitedMeanwhile,
    NotAllowed,
    OwnerNotInvitable,
    TokenUnknown,
)
from contexts.families.events import (
    Email,
    FamiliesError,
    FamilyCreated,
    FamilyId,
    FamilyMemberInvitationAccepted,
    FamilyMemberInvitationExpired,
    FamilyMemberInvitationRevoked,
    FamilyMemberInvited,
    FamilyMemberJoined,
    FamilyName,
    InvalidEmail,
    InvalidName,
    InvalidToken,
    InvitationId,
    InvitationToken,
    Role,
    RoleName,
    UserId,
)
from contexts.families.use_cases import (
    AcceptFamilyMemberInvitation,
    AcceptFamilyMemberInvitationHandler,
    CreateFamily,
    CreateFamilyHandler,
    FindFamily,
    FindFamilyHandler,
    InvitationSent,
)
from outbox_kernel.errors import ConcurrencyError
from outbox_kernel.testing import ANY, FrozenClock, assert_recorded, using_clock
from tests.unit.families.home import BO, Home
from tests.unit.families.in_memory import InMemoryFamiliesUnitOfWork

TIME_TO_ANSWER = timedelta(days=INVITATION_DAYS)


@pytest.fixture(autouse=True)
def clock() -> Iterator[FrozenClock]:
    with using_clock(FrozenClock()) as clock:
        yield clock


@pytest.fixture
def home() -> Home:
    return Home()


# --- creating a family ----------------------------------------------------------------------------------


async def test_creating_a_family_is_two_events() -> None:
    uow, owner = InMemoryFamiliesUnitOfWork(), uuid4()
    family_id = await CreateFamilyHandler(uow).handle(CreateFamily("The Lovelaces", owner, "Ada@example.org"))
    assert_recorded(
        uow,
        FamilyCreated(FamilyId(family_id), FamilyName("The Lovelaces"), UserId(owner)),
        FamilyMemberJoined(FamilyId(family_id), UserId(owner), Role(RoleName.OWNER)),
    )


@pytest.mark.parametrize(("name", "email", "error"), [("", BO, InvalidName), ("Us", "nobody", InvalidEmail)])
async def test_what_makes_no_family_leaves_nothing(name: str, email: str, error: type[Exception]) -> None:
    uow = InMemoryFamiliesUnitOfWork()
    with pytest.raises(error):
        await CreateFamilyHandler(uow).handle(CreateFamily(name, uuid4(), email))
    assert_recorded(uow)


async def test_a_family_is_looked_at_by_who_belongs_to_it(home: Home) -> None:
    handler = FindFamilyHandler(home.uow())
    assert (await handler.handle(FindFamily(home.family_id, home.owner))).id.value == home.family_id
    with pytest.raises(FamilyNotFound):
        await handler.handle(FindFamily(home.family_id, uuid4()))


# --- inviting -------------------------------------------------------------------------------------------


async def test_inviting_is_an_event(home: Home, clock: FrozenClock) -> None:
    sent = await home.invite("Bo@Example.org", role=RoleName.ADMIN)
    end = clock.now() + TIME_TO_ANSWER
    assert sent == InvitationSent(sent.invitation_id, end, is_resend=False)
    assert_recorded(
        home.store,
        FamilyMemberInvited(
            InvitationId(sent.invitation_id),
            FamilyId(home.family_id),
            Email(BO),
            Role(RoleName.ADMIN),
            ANY,
            end,
            UserId(home.owner),
            is_resend=False,
        ),
    )
    assert home.invitation(sent.invitation_id).expires_at == end


async def test_an_open_invitation_is_sent_again_instead_of_doubled(home: Home, clock: FrozenClock) -> None:
    first = await home.invite()
    clock.advance(timedelta(days=1))
    second = await home.invite("BO@example.org", role=RoleName.ADMIN)
    assert second == InvitationSent(first.invitation_id, clock.now() + TIME_TO_ANSWER, is_resend=True)
    assert len(set(home.tokens)) == 2
    assert [record.aggregate_version for record in home.store.outbox] == [1, 2]
    assert len(home.store.all(FamilyMemberInvitation)) == 1
    assert home.invitation(first.invitation_id).role == Role(RoleName.ADMIN)


async def test_an_address_whose_invitation_has_lapsed_is_sent_the_same_again(
    home: Home, clock: FrozenClock
) -> None:
    first = await home.invite()
    clock.advance(TIME_TO_ANSWER)
    assert (await home.invite()).invitation_id == first.invitation_id
    await home.accept(uuid4())


async def test_an_address_whose_invitation_has_ended_gets_a_new_one(home: Home) -> None:
    first = await home.invite()
    await home.revoke(first.invitation_id)
    second = await home.invite()
    assert not second.is_resend
    assert second.invitation_id != first.invitation_id


async def test_two_families_invite_one_address(home: Home) -> None:
    neighbours = Home(home.store)
    await home.invite()
    assert not (await neighbours.invite()).is_resend


async def test_two_who_found_no_invitation_give_one_and_a_conflict(home: Home) -> None:
    first, second = home.uow(), home.uow()
    family_id, by = FamilyId(home.family_id), UserId(home.owner)
    async with first, second:
        for uow in (first, second):
            uow.invitations.add(
                FamilyMemberInvitation.invite(
                    family_id, Email(BO), Role(RoleName.MEMBER), by=by, now=FrozenClock().now()
                )
            )
        await first.commit()
        with pytest.raises(InvitedMeanwhile, match="send it again if it is not enough"):
            await second.commit()
    assert len(home.tokens) == 1


async def test_two_who_send_it_again_at_once_give_one_mail_and_a_conflict(home: Home) -> None:
    sent = await home.invite()
    other = home.uow()
    async with other:
        theirs = await other.invitations.get(InvitationId(sent.invitation_id))
        assert theirs is not None
        theirs.resend(theirs.role, by=UserId(home.owner), now=FrozenClock().now())
        await home.resend(sent.invitation_id)
        with pytest.raises(ConcurrencyError):
            await other.commit()
    assert len(home.tokens) == 2


async def join(home: Home, email: str, role: RoleName) -> UUID:
    user_id = uuid4()
    await home.invite(email, role=role)
    await home.accept(user_id)
    return user_id


async def test_an_admin_who_has_joined_invites_and_a_member_does_not(home: Home) -> None:
    admin = await join(home, BO, RoleName.ADMIN)
    member = await join(home, "carol@example.org", RoleName.MEMBER)
    await home.invite("dora@example.org", by=admin)
    with pytest.raises(NotAllowed):
        await home.invite("dora@example.org", by=member)


async def test_an_admin_of_another_family_does_not_invite(home: Home) -> None:
    with pytest.raises(FamilyNotFound):
        await home.invite(by=Home(home.store).owner)
    assert_recorded(home.store)


@pytest.mark.parametrize(
    ("email", "role", "error"),
    [
        ("nobody", RoleName.MEMBER, InvalidEmail),
        (BO, RoleName.OWNER, OwnerNotInvitable),
        ("ADA@example.org", RoleName.MEMBER, AlreadyMember),
    ],
)
async def test_what_breaks_a_rule_is_sent_to_nobody(
    home: Home, email: str, role: RoleName, error: type[FamiliesError]
) -> None:
    with pytest.raises(error):
        await home.invite(email, role=role)
    assert_recorded(home.store)


async def test_to_a_family_that_is_not_there_nobody_is_invited(home: Home) -> None:
    home.family_id = uuid4()
    with pytest.raises(FamilyNotFound, match=f"no family {home.family_id}"):
        await home.invite()


# --- resending and revoking -----------------------------------------------------------------------------


async def test_a_resend_is_an_event_of_the_same_invitation(home: Home, clock: FrozenClock) -> None:
    sent = await home.invite(role=RoleName.ADMIN)
    clock.advance(60)
    again = await home.resend(sent.invitation_id)
    assert again == InvitationSent(sent.invitation_id, clock.now() + TIME_TO_ANSWER, is_resend=True)
    assert_recorded(
        home.store,
        FamilyMemberInvited,
        FamilyMemberInvited(
            InvitationId(sent.invitation_id),
            FamilyId(home.family_id),
            Email(BO),
            Role(RoleName.ADMIN),
            ANY,
            again.expires_at,
            UserId(home.owner),
            is_resend=True,
        ),
    )


async def test_revoking_is_an_event(home: Home) -> None:
    sent = await home.invite()
    await home.revoke(sent.invitation_id)
    assert_recorded(
        home.store,
        FamilyMemberInvited,
        FamilyMemberInvitationRevoked(
            InvitationId(sent.invitation_id), FamilyId(home.family_id), UserId(home.owner)
        ),
    )


@pytest.mark.parametrize("ask", [Home.resend, Home.revoke])
async def test_only_who_may_invite_sends_again_or_takes_back(
    home: Home, ask: Callable[..., Awaitable[object]]
) -> None:
    await home.invite()
    await home.accept(member := uuid4())
    sent = await home.invite("carol@example.org")
    with pytest.raises(NotAllowed):
        await ask(home, sent.invitation_id, member)
    with pytest.raises(InvitationNotFound):
        await ask(home, sent.invitation_id, uuid4())


@pytest.mark.parametrize("ask", [Home.resend, Home.revoke, Home.expire])
async def test_an_invitation_that_is_not_there_is_a_sentence(
    home: Home, ask: Callable[..., Awaitable[object]]
) -> None:
    with pytest.raises(InvitationNotFound, match="there is no invitation"):
        await ask(home, uuid4())


# --- accepting ------------------------------------------------------------------------------------------


async def test_accepting_makes_a_member(home: Home) -> None:
    sent, bo = await home.invite(role=RoleName.ADMIN), uuid4()
    assert await home.accept(bo) == home.family_id
    family = FamilyId(home.family_id)
    assert_recorded(
        home.store,
        FamilyMemberInvited,
        FamilyMemberInvitationAccepted(InvitationId(sent.invitation_id), family, UserId(bo)),
        FamilyMemberJoined(family, UserId(bo), Role(RoleName.ADMIN)),
    )
    assert home.roles == {home.owner: RoleName.OWNER, bo: RoleName.ADMIN}
    assert home.invitation(sent.invitation_id).status is InvitationStatus.ACCEPTED


async def test_a_token_is_used_once(home: Home) -> None:
    await home.invite()
    await home.accept(uuid4())
    with pytest.raises(InvitationNotOpen, match="accepted already"):
        await home.accept(uuid4())
    assert len(home.roles) == 2


async def test_a_token_that_was_replaced_opens_nothing(home: Home) -> None:
    await home.invite()
    await home.invite()
    with pytest.raises(TokenUnknown):
        await home.accept(uuid4(), home.tokens[0])
    assert len(home.roles) == 1
    await home.accept(uuid4(), home.tokens[1])


@pytest.mark.parametrize(
    ("token", "error"), [("", InvalidToken), (InvitationToken.new().value, TokenUnknown)]
)
async def test_without_the_token_nobody_joins(home: Home, token: str, error: type[Exception]) -> None:
    await home.invite()
    command = AcceptFamilyMemberInvitation(token, uuid4())
    with pytest.raises(error):
        await AcceptFamilyMemberInvitationHandler(home.uow()).handle(command)


async def test_who_is_a_member_does_not_join_again_and_the_invitation_stays_open(home: Home) -> None:
    sent = await home.invite()
    with pytest.raises(AlreadyMember):
        await home.accept(home.owner)
    assert home.invitation(sent.invitation_id).status is InvitationStatus.OPEN
    await home.accept(uuid4())


async def test_who_is_late_does_not_join(home: Home, clock: FrozenClock) -> None:
    await home.invite()
    clock.advance(TIME_TO_ANSWER)
    with pytest.raises(InvitationLapsed):
        await home.accept(uuid4())


async def test_what_was_revoked_is_not_accepted(home: Home) -> None:
    sent = await home.invite()
    await home.revoke(sent.invitation_id)
    with pytest.raises(InvitationNotOpen, match="revoked already"):
        await home.accept(uuid4())


# --- expiring -------------------------------------------------------------------------------------------


async def test_what_has_lapsed_expires(home: Home, clock: FrozenClock) -> None:
    sent = await home.invite()
    with pytest.raises(InvitationNotLapsed):
        await home.expire(sent.invitation_id)
    clock.advance(TIME_TO_ANSWER)
    await home.expire(sent.invitation_id)
    assert_recorded(
        home.store,
        FamilyMemberInvited,
        FamilyMemberInvitationExpired(InvitationId(sent.invitation_id), FamilyId(home.family_id)),
    )
    with pytest.raises(InvitationNotOpen, match="expired already"):
        await home.expire(sent.invitation_id)
