"""The values of families: valid from the moment they exist, and silent about what is secret (X3, K11)."""

from __future__ import annotations

from uuid import uuid4

import pytest

from contexts.families.events import (
    EMAIL_CHARACTERS_MAX,
    FAMILY_NAME_CHARACTERS_MAX,
    Email,
    FamilyId,
    FamilyName,
    InvalidEmail,
    InvalidId,
    InvalidName,
    InvalidRole,
    InvalidToken,
    InvitationId,
    InvitationToken,
    Role,
    RoleName,
    UserId,
)
from contexts.families.use_cases import AcceptFamilyMemberInvitation, CreateFamily, InviteFamilyMemberByEmail


@pytest.mark.parametrize("cls", [FamilyId, InvitationId, UserId])
def test_an_id_is_made_of_a_uuid(cls: type) -> None:
    uuid = uuid4()
    assert cls(uuid) == cls(uuid)
    with pytest.raises(InvalidId, match=f"{cls.__name__} is made of a UUID, not of str"):
        cls(str(uuid))


@pytest.mark.parametrize(
    "written",
    [
        "bo@example.org",
        "  Bo@Example.ORG ",
        "\uff42o@example.org",
        "bo@example.org. ",
        "bo@example.org\uff0e",
    ],
)
def test_an_address_is_written_in_one_way(written: str) -> None:
    assert Email(written) == Email("bo@example.org")


def test_an_address_that_composes_in_lower_case_only_is_written_in_one_way_too() -> None:
    assert Email("T\u0308@example.org") == Email("\u1e97@example.org")


@pytest.mark.parametrize(
    "written",
    [
        "",
        "bo",
        "bo@.",
        "bo@example.org .",
        "@example.org",
        "bo@",
        "a@b@c",
        "a b@example.org",
        "a\0@example.org",
        "a\n@b.org",
    ],
)
def test_what_is_no_address_is_refused_with_a_remedy(written: str) -> None:
    with pytest.raises(InvalidEmail, match=r"write it like name@example\.org"):
        Email(written)


def test_an_address_has_a_longest_length() -> None:
    host = "@example.org"
    Email("a" * (EMAIL_CHARACTERS_MAX - len(host)) + host)
    with pytest.raises(InvalidEmail, match="254 are the limit"):
        Email("a" * EMAIL_CHARACTERS_MAX + host)


def test_a_role_is_one_of_those_that_there_are() -> None:
    assert [Role(name).invites for name in RoleName] == [True, True, False]
    assert Role("admin") == Role(RoleName.ADMIN)
    with pytest.raises(InvalidRole, match="choose one of owner, admin, member"):
        Role("boss")


@pytest.mark.parametrize("written", ["", "   ", "a\nb", "\0"])
def test_a_family_has_a_name_that_can_be_shown(written: str) -> None:
    with pytest.raises(InvalidName, match="give it one"):
        FamilyName(written)


def test_a_family_has_a_name_of_some_length() -> None:
    assert FamilyName("  The Lovelaces ").value == "The Lovelaces"
    FamilyName("a" * FAMILY_NAME_CHARACTERS_MAX)
    with pytest.raises(InvalidName, match="100 are the limit"):
        FamilyName("a" * (FAMILY_NAME_CHARACTERS_MAX + 1))


def test_no_two_tokens_are_the_same_and_each_is_known_by_its_digest() -> None:
    first, second = InvitationToken.new(), InvitationToken.new()
    assert first != second
    assert first.digest != second.digest
    assert first.digest == InvitationToken(first.value).digest
    assert first.value not in first.digest


@pytest.mark.parametrize("written", ["", "abc", "a" * 42 + "=", "a" * 44, "a" * 43 + "\n"])
def test_what_is_no_token_is_refused_and_not_repeated(written: str) -> None:
    with pytest.raises(InvalidToken, match="copy the whole link"):
        InvitationToken(written)


def test_no_address_and_no_token_shows_in_what_a_log_may_print() -> None:
    token, user = InvitationToken.new(), uuid4()
    shown = (
        Email("bo@example.org"),
        token,
        CreateFamily("The Lovelaces", user, "bo@example.org"),
        InviteFamilyMemberByEmail(uuid4(), "bo@example.org", user),
        AcceptFamilyMemberInvitation(token.value, user),
    )
    assert [each for each in map(repr, shown) if "bo@" in each or token.value in each] == []
