"""The account and its rules."""

from __future__ import annotations

import unicodedata
from uuid import UUID, uuid4

import attrs
from email_validator import EmailNotValidError, validate_email

from contexts.accounts.events import AccountCreated, AccountEmailChanged, AccountRole
from outbox_kernel import AggregateRoot, Conflict, DomainError, NotFound, aggregate

EMAIL_CHARACTERS_MAX = 254


class AccountsError(DomainError):
    """A rule of this context said no; the sentence is fit to show, and names no address."""


class InvalidEmail(AccountsError, ValueError):
    """The text is no e-mail address."""

    kind = "invalid_email"


class EmailTaken(AccountsError, Conflict):
    """Another account has this e-mail address."""

    kind = "email_taken"

    def __init__(self) -> None:
        super().__init__("another account has this e-mail address: sign in with it, or use another address")


class AccountNotFound(AccountsError, NotFound):
    """There is no such account."""

    kind = "account_not_found"

    def __init__(self, account_id: UUID) -> None:
        self.account_id = account_id
        super().__init__(
            f"there is no account {account_id}: it was removed, or the id is wrong, or another's"
        )


def _normalised(text: str) -> str:
    # What is too long is refused as it is: to bring a megabyte into its normal form can take minutes.
    if len(text) > EMAIL_CHARACTERS_MAX:
        return text
    # One way to write each address, or two accounts could share it. Lower case may compose where upper case does not,
    # so the text is brought into its normal form once more at the end. A host may end in the dot of the root, or not.
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).strip().lower()).rstrip(".")


def _check_email(_: object, __: object, address: str) -> None:
    if len(address) > EMAIL_CHARACTERS_MAX:
        raise InvalidEmail(
            f"this e-mail address has {len(address)} characters, and {EMAIL_CHARACTERS_MAX} are the limit: "
            "use a shorter one"
        )
    name, at, host = address.rpartition("@")
    if not (name and at and host) or "@" in name or " " in address or not address.isprintable():
        raise _no_email()


def _no_email() -> InvalidEmail:
    return InvalidEmail("this is no e-mail address: write it like name@example.org")


@attrs.frozen
class EmailAddress:
    """An e-mail address, written in one way; only sending to it can prove that it is somebody's."""

    value: str = attrs.field(converter=_normalised, validator=_check_email, repr=lambda _: "***")

    @classmethod
    def given(cls, text: str) -> EmailAddress:
        """Read what somebody gives as theirs, or raise InvalidEmail where no mail server would take it.

        A host of other letters is written in ASCII, as mail servers know it. Nobody is asked whether there is such a
        host. What was stored once is not asked again: rules of this kind change.
        """
        address = cls(text)
        try:
            found = validate_email(address.value, strict=True, check_deliverability=False)
        except EmailNotValidError:
            raise _no_email() from None
        return cls(f"{found.local_part}@{found.ascii_domain}")


@aggregate("account")
class Account(AggregateRoot):
    """A person's way in."""

    id: UUID
    email: EmailAddress
    role: AccountRole = AccountRole.MEMBER

    @classmethod
    def sign_up(cls, email: EmailAddress, role: AccountRole = AccountRole.MEMBER) -> Account:
        """Open an account."""
        account = cls(uuid4(), email, role)
        account.record(AccountCreated(account.id, email.value, role))
        return account

    def change_email(self, email: EmailAddress) -> None:
        """Use another address from now on; the same one again is no change."""
        if email == self.email:
            return
        self.email = email
        self.record(AccountEmailChanged(self.id, email.value))
