"""The rules of families and invitations, with nothing but the domain (X3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from contexts.families.domain import (
    INVITATION_DAYS,
    AlreadyMember,
    Family,
    FamilyMemberInvitation,
    FamilyNotFound,
    InvitationLapsed,
    InvitationNotLapsed,
    InvitationNotOpen,
    InvitationStatus,
    NotAllowed,
    OwnerNotInvitable,
    TokenUnknown,
)
from contexts.families.events import (
    Email,
    FamilyCreated,
    FamilyId,
    FamilyMemberInvitationAccepted,
    FamilyMemberInvitationExpired,
    FamilyMemberInvitationRevoked,
    FamilyMemberInvited,
    FamilyMemberJoined,
    FamilyName,
    InvitationToken,
    Role,
    RoleName,
    UserId,
)
from outbox_kernel.testing import ANY, given, when

NAME = FamilyName("The Lovelaces")
ADA, BO, CAROL = Email("ada@example.org"), Email("bo@example.org"), Email("carol@example.org")
OWNER, ADMIN, MEMBER = (Role(name) for name in RoleName)
ada, bo, carol = (UserId(uuid4()) for _ in range(3))
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
END = NOW + timedelta(days=INVITATION_DAYS)
FAMILY = FamilyId(uuid4())


def family(**others: tuple[UserId, Email, Role]) -> Family:
    made = Family.create(NAME, ada, ADA)
    for other in others.values():
        made.admit(*other)
    return made


def invitation() -> FamilyMemberInvitation:
    return FamilyMemberInvitation.invite(FAMILY, BO, MEMBER, by=ada, now=NOW)


def newest_token(invited: FamilyMemberInvitation) -> InvitationToken:
    event = invited.recorded_events[-1]
    assert isinstance(event, FamilyMemberInvited)
    return event.token


ENDED: dict[InvitationStatus, Any] = {
    InvitationStatus.ACCEPTED: lambda it: it.accept(newest_token(it), bo, now=NOW),
    InvitationStatus.REVOKED: lambda it: it.revoke(ada),
    InvitationStatus.EXPIRED: lambda it: it.expire(now=END),
}
in_any_way = pytest.mark.parametrize("way", ENDED, ids=lambda way: way.value)


# --- the family -----------------------------------------------------------------------------------------


def test_who_makes_a_family_owns_it_and_is_its_first_member() -> None:
    outcome = when(lambda: Family.create(NAME, ada, ADA))
    outcome.then(FamilyCreated(ANY, NAME, ada), FamilyMemberJoined(ANY, ada, OWNER))
    made = outcome.result
    assert isinstance(made, Family)
    (owner,) = made.members
    assert (owner.user_id, owner.email, owner.role) == (ada, ADA, OWNER)
    assert owner.joined_at == made.recorded_events[-1].occurred_at


@pytest.mark.parametrize("role", [OWNER, ADMIN])
def test_owner_and_admins_invite(role: Role) -> None:
    inviter = ada if role == OWNER else bo
    given(family(bo=(bo, BO, ADMIN))).when(
        lambda it: it.check_invitation(CAROL, ADMIN, by=inviter)
    ).then_nothing()


def test_a_member_does_not_invite() -> None:
    outcome = given(family(bo=(bo, BO, MEMBER))).when(lambda it: it.check_invitation(CAROL, MEMBER, by=bo))
    outcome.then_raises(NotAllowed, match="ask one of them")


def test_to_a_stranger_who_invites_the_family_is_not_there() -> None:
    outcome = given(family(bo=(bo, BO, MEMBER))).when(lambda it: it.check_invitation(CAROL, MEMBER, by=carol))
    outcome.then_raises(FamilyNotFound, match="the id is wrong, or another's")


def test_who_is_a_member_is_not_invited() -> None:
    given(family(bo=(bo, BO, MEMBER))).when(lambda it: it.check_invitation(BO, ADMIN, by=ada)).then_raises(
        AlreadyMember, match="a member of the family already"
    )


def test_no_owner_is_invited() -> None:
    given(family()).when(lambda it: it.check_invitation(BO, OWNER, by=ada)).then_raises(
        OwnerNotInvitable, match="invite an admin or a member"
    )


def test_who_is_taken_in_has_joined() -> None:
    given(family()).when(lambda it: it.admit(bo, BO, ADMIN)).then(FamilyMemberJoined(ANY, bo, ADMIN))


@pytest.mark.parametrize(("user", "email"), [(ada, BO), (bo, ADA)], ids=["the user", "the address"])
def test_nobody_is_taken_in_twice(user: UserId, email: Email) -> None:
    given(family()).when(lambda it: it.admit(user, email, MEMBER)).then_raises(AlreadyMember)


# --- the invitation -------------------------------------------------------------------------------------


def test_an_invitation_holds_for_14_days() -> None:
    outcome = when(invitation)
    outcome.then(FamilyMemberInvited(ANY, FAMILY, BO, MEMBER, ANY, END, ada, is_resend=False))
    made = outcome.result
    assert isinstance(made, FamilyMemberInvitation)
    assert (made.status, made.open_to, made.expires_at) == (InvitationStatus.OPEN, BO, END)
    assert (END - NOW).days == 14
    assert made.recorded_events[0].occurred_at == NOW


def test_the_row_does_not_tell_the_token() -> None:
    made = invitation()
    token = newest_token(made)
    assert made.token_digest == token.digest
    assert token.value not in repr(vars(made)).replace(repr(made.recorded_events), "")


def test_a_resend_has_a_new_token_the_whole_time_and_the_role_that_is_meant_now() -> None:
    made, later = invitation(), NOW + timedelta(days=3)
    old, of_old = newest_token(made), made.id
    made.resend(ADMIN, by=carol, now=later)
    event = made.recorded_events[-1]
    assert event == FamilyMemberInvited(
        made.id,
        FAMILY,
        BO,
        ADMIN,
        newest_token(made),
        END + timedelta(days=3),
        carol,
        is_resend=True,
        event_id=event.event_id,
        occurred_at=later,
    )
    assert made.id == of_old
    assert newest_token(made) != old
    assert (made.role, made.invited_by, made.expires_at) == (ADMIN, carol, END + timedelta(days=3))


def test_who_has_the_token_accepts() -> None:
    made = invitation()
    token = newest_token(made)
    given(made).when(lambda it: it.accept(token, bo, now=END - timedelta(seconds=1))).then(
        FamilyMemberInvitationAccepted(made.id, FAMILY, bo)
    )
    assert (made.status, made.accepted_by, made.open_to) == (InvitationStatus.ACCEPTED, bo, None)


def test_only_the_newest_token_is_valid() -> None:
    made = invitation()
    old = newest_token(made)
    made.resend(MEMBER, by=ada, now=NOW)
    newest = newest_token(made)
    for wrong in (old, InvitationToken.new()):
        with pytest.raises(TokenUnknown, match="a newer mail may have replaced it"):
            made.accept(wrong, bo, now=NOW)
    given(made).when(lambda it: it.accept(newest, bo, now=NOW)).then(FamilyMemberInvitationAccepted)


def test_a_token_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr("contexts.families.domain.invitation.compare_digest", compare)
    made = invitation()
    token = newest_token(made)
    with pytest.raises(TokenUnknown):
        made.accept(token, bo, now=NOW)
    assert compared == [(token.digest, token.digest)]


def test_what_has_lapsed_cannot_be_accepted_and_can_be_sent_again() -> None:
    made = invitation()
    token = newest_token(made)
    given(made).when(lambda it: it.accept(token, bo, now=END)).then_raises(
        InvitationLapsed, match="held until 2026-01-16 03:04 UTC: ask for a new one"
    )
    given(made).when(lambda it: it.resend(MEMBER, by=ada, now=END)).then(FamilyMemberInvited)


def test_what_is_open_can_be_revoked() -> None:
    made = invitation()
    given(made).when(lambda it: it.revoke(carol)).then(FamilyMemberInvitationRevoked(made.id, FAMILY, carol))
    assert made.status is InvitationStatus.REVOKED


def test_what_has_lapsed_expires_and_nothing_before() -> None:
    made = invitation()
    given(made).when(lambda it: it.expire(now=END - timedelta(seconds=1))).then_raises(
        InvitationNotLapsed, match="holds until 2026-01-16 03:04 UTC: wait until then, or revoke it"
    )
    given(made).when(lambda it: it.expire(now=END)).then(FamilyMemberInvitationExpired(made.id, FAMILY))
    assert made.status is InvitationStatus.EXPIRED


@in_any_way
def test_what_has_ended_stays_as_it_ended(way: InvitationStatus) -> None:
    made = invitation()
    token = newest_token(made)
    ENDED[way](made)
    assert (made.status, made.open_to) == (way, None)
    for again in (
        lambda it: it.accept(token, carol, now=NOW),
        lambda it: it.resend(MEMBER, by=ada, now=NOW),
        lambda it: it.revoke(ada),
        lambda it: it.expire(now=END),
    ):
        given(made).when(again).then_raises(InvitationNotOpen, match=f"is {way.value} already")


@in_any_way
def test_its_events_rebuild_it(way: InvitationStatus) -> None:
    made = invitation()
    made.resend(ADMIN, by=carol, now=NOW)
    ENDED[way](made)
    history = made.recorded_events
    twin = FamilyMemberInvitation.replay(history)
    assert {key: value for key, value in vars(twin).items() if not key.startswith("_")} == {
        key: value for key, value in vars(made).items() if not key.startswith("_")
    }
