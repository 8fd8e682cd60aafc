"""The values that this context speaks in. Each is valid from the moment it exists.

An event that is restored makes its values anew, through these constructors. So they ask only for what has always held;
a rule that may change one day, such as which addresses may be invited, belongs to the domain.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import unicodedata
from enum import Enum
from typing import Any
from uuid import UUID

import attrs

from contexts.families.events.errors import InvalidEmail, InvalidId, InvalidName, InvalidRole, InvalidToken

EMAIL_CHARACTERS_MAX = 254
FAMILY_NAME_CHARACTERS_MAX = 100
# 256 bits, which nobody guesses, so that its digest needs no salt.
_TOKEN_BYTES = 32
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


def _check_uuid(instance: Any, _: object, value: UUID) -> None:
    given: Any = value
    if not isinstance(given, UUID):
        raise InvalidId(f"{type(instance).__name__} is made of a UUID, not of {type(given).__name__}")


@attrs.frozen
class FamilyId:
    """Which family."""

    value: UUID = attrs.field(validator=_check_uuid)


@attrs.frozen
class InvitationId:
    """Which invitation."""

    value: UUID = attrs.field(validator=_check_uuid)


@attrs.frozen
class UserId:
    """Which user, as whoever signs users in knows them."""

    value: UUID = attrs.field(validator=_check_uuid)


class RoleName(Enum):
    """The roles that there are."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"


def _role_name(written: RoleName | str) -> RoleName:
    try:
        return RoleName(written)
    except ValueError:
        known = ", ".join(name.value for name in RoleName)
        raise InvalidRole(f"there is no role like this in a family: choose one of {known}") from None


@attrs.frozen
class Role:
    """What a member may do: the owner and the admins invite."""

    value: RoleName = attrs.field(converter=_role_name)

    @property
    def invites(self) -> bool:
        """Whether it lets its holder invite others, and take invitations back."""
        return self.value in (RoleName.OWNER, RoleName.ADMIN)

    @property
    def is_owner(self) -> bool:
        """Whether its holder is the one that the family belongs to."""
        return self.value is RoleName.OWNER


def _normalised(text: str) -> str:
    # What is too long is refused as it is: to bring a megabyte into its normal form can take minutes.
    if len(text) > EMAIL_CHARACTERS_MAX:
        return text
    # One way to write each address, or it could be invited twice. Lower case may compose where upper case does not,
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
        raise InvalidEmail("this is no e-mail address: write it like name@example.org")


@attrs.frozen
class Email:
    """An e-mail address, written in one way; only an answer to what was sent there proves whose it is."""

    value: str = attrs.field(converter=_normalised, validator=_check_email, repr=lambda _: "***")


def _trimmed(text: str) -> str:
    return text.strip()


def _check_name(_: object, __: object, name: str) -> None:
    if not name or not name.isprintable():
        raise InvalidName("a family needs a name of letters that can be shown: give it one")
    if len(name) > FAMILY_NAME_CHARACTERS_MAX:
        raise InvalidName(
            f"this name has {len(name)} characters, and {FAMILY_NAME_CHARACTERS_MAX} are the limit: "
            "use a shorter one"
        )


@attrs.frozen
class FamilyName:
    """What a family is called."""

    value: str = attrs.field(converter=_trimmed, validator=_check_name)


def _check_token(_: object, __: object, token: str) -> None:
    if not _TOKEN.fullmatch(token):
        raise InvalidToken("this is no token of an invitation: copy the whole link from the newest mail")


@attrs.frozen
class InvitationToken:
    """What whoever reads the invited mailbox has, and nobody else."""

    value: str = attrs.field(validator=_check_token, repr=lambda _: "***")

    @classmethod
    def new(cls) -> InvitationToken:
        """Make one that nobody can guess."""
        return cls(secrets.token_urlsafe(_TOKEN_BYTES))

    @property
    def digest(self) -> str:
        """What can be kept to know the token again, and does not tell it."""
        return hashlib.sha256(self.value.encode()).hexdigest()
