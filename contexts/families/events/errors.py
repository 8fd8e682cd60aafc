"""What this context answers instead of doing it; the values that it publishes answer so too."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar


class ErrorKind(Enum):
    """What a refusal means to whoever asked, whatever the protocol calls it."""

    RULE_BROKEN = "rule_broken"
    """It can never be done like this: ask for something else."""
    FORBIDDEN = "forbidden"
    """Somebody else may do it."""
    NOT_FOUND = "not_found"
    """What it is about is not there."""
    CONFLICT = "conflict"
    """Somebody was quicker: look again, then decide."""


class FamiliesError(Exception):
    """A rule of this context said no; the sentence is fit to show, and names no address and no token.

    Beside these a use case raises the kernel's ConcurrencyError, which is a conflict as well.
    """

    kind: ClassVar[ErrorKind] = ErrorKind.RULE_BROKEN


class InvalidValue(FamiliesError, ValueError):
    """What was given is no such value."""


class InvalidId(InvalidValue):
    """What was given identifies nothing."""


class InvalidEmail(InvalidValue):
    """The text is no e-mail address."""


class InvalidName(InvalidValue):
    """The text is no name of a family."""


class InvalidRole(InvalidValue):
    """There is no such role."""


class InvalidToken(InvalidValue):
    """The text is no token of an invitation."""
