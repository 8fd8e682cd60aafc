"""The rules of accounts, with nothing but the domain."""

from __future__ import annotations

import pytest

from contexts.accounts.domain import EMAIL_CHARACTERS_MAX, Account, EmailAddress, EmailTaken, InvalidEmail
from contexts.accounts.events import AccountCreated, AccountEmailChanged, AccountRole
from contexts.accounts.use_cases import ChangeEmail, SignUp

ADA = EmailAddress("ada@example.org")


def test_signing_up_records_the_account() -> None:
    account = Account.sign_up(ADA, AccountRole.ADMIN)
    (created,) = account.recorded_events
    assert isinstance(created, AccountCreated)
    assert (created.account_id, created.email, created.role) == (account.id, ADA.value, AccountRole.ADMIN)
    assert (created.aggregate_type, created.aggregate_version) == ("account", 1)


def test_changing_the_address_is_recorded() -> None:
    account = Account.sign_up(ADA)
    account.change_email(EmailAddress("ada@home.example"))
    assert [type(event) for event in account.recorded_events] == [AccountCreated, AccountEmailChanged]
    assert account.email.value == "ada@home.example"


def test_the_same_address_again_is_no_change() -> None:
    account = Account.sign_up(ADA)
    account.change_email(EmailAddress(" Ada@Example.org"))
    assert len(account.recorded_events) == 1


@pytest.mark.parametrize(
    "written",
    [
        "ada@example.org",
        "  ADA@Example.ORG ",
        "\uff41da@example.org",
        "ada@example.org. ",
        "ada@example.org\uff0e",
    ],
)
def test_an_address_is_written_in_one_way(written: str) -> None:
    assert EmailAddress(written) == ADA


def test_an_address_that_composes_in_lower_case_only_is_written_in_one_way_too() -> None:
    assert EmailAddress("T\u0308@example.org") == EmailAddress("\u1e97@example.org")


@pytest.mark.parametrize(
    "written",
    [
        "",
        "ada",
        "ada@.",
        "ada@example.org .",
        "@example.org",
        "ada@",
        "a@b@c",
        "a b@example.org",
        "a\0@example.org",
        "a\n@b.org",
    ],
)
def test_what_is_no_address_is_refused_with_a_remedy(written: str) -> None:
    with pytest.raises(InvalidEmail, match=r"write it like name@example\.org"):
        EmailAddress(written)


def test_an_address_has_a_longest_length() -> None:
    host = "@example.org"
    EmailAddress("a" * (EMAIL_CHARACTERS_MAX - len(host)) + host)
    with pytest.raises(InvalidEmail, match="254 are the limit"):
        EmailAddress("a" * EMAIL_CHARACTERS_MAX + host)


def test_no_address_shows_in_what_a_log_may_print() -> None:
    account = Account.sign_up(ADA)
    shown = (ADA, account, account.recorded_events[0], SignUp(ADA.value), ChangeEmail(account.id, ADA.value))
    # Not of "ada": the digits of an id may spell that.
    assert [each for each in map(repr, shown) if "@" in each or "example" in each] == []
    assert "@" not in str(EmailTaken())
