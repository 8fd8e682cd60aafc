"""What this context answers to values that are none; here, since what it publishes is made of them."""

from __future__ import annotations

from outbox_kernel import DomainError


class FamiliesError(DomainError):
    """A rule of this context said no; the sentence is fit to show, and names no address and no token.

    Beside these a use case raises the kernel's ConcurrencyError, which is a conflict as well.
    """


class InvalidValue(FamiliesError, ValueError):
    """What was given is no such value."""


class InvalidId(InvalidValue):
    """What was given identifies nothing."""

    kind = "invalid_id"


class InvalidEmail(InvalidValue):
    """The text is no e-mail address."""

    kind = "invalid_email"


class InvalidName(InvalidValue):
    """The text is no name of a family."""

    kind = "invalid_name"


class InvalidRole(InvalidValue):
    """There is no such role."""

    kind = "invalid_role"


class InvalidToken(InvalidValue):
    """The text is no token of an invitation."""

    kind = "invalid_token"
