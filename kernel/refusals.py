"""How a domain says no: four kinds of refusal, which every door to the application can tell apart."""

from __future__ import annotations

from typing import ClassVar


class DomainError(Exception):
    """A rule of the domain said no; the sentence is fit to show to whoever asked, and names no secret."""

    kind: ClassVar[str] = "rule_broken"
    """The stable name of this refusal, for programs: what a door calls it, whatever becomes of the class's name."""


class NotFound(DomainError):
    """What was asked for is not there."""

    kind: ClassVar[str] = "not_found"


class Conflict(DomainError):
    """What was asked for does not go with what is there already."""

    kind: ClassVar[str] = "conflict"


class Forbidden(DomainError):
    """Whoever asks may not do this."""

    kind: ClassVar[str] = "forbidden"
