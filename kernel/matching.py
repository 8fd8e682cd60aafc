"""Which event types a pattern means: a name in which `*` stands for any part (K5, R2)."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.limits import NAME_CHARACTERS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

_PATTERN = re.compile(r"[A-Za-z0-9_.\-*]+")


def matches(event_type: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns means this event type."""
    return any(fnmatchcase(event_type, pattern) for pattern in patterns)


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that no event's name could match."""
    if not _PATTERN.fullmatch(pattern) or len(pattern) > NAME_CHARACTERS_MAX:
        raise DefinitionError(
            f"@handles names the pattern {pattern!r}, which no event's name can match; take letters, digits, dots, "
            f"dashes and underscores, with * for any part, {NAME_CHARACTERS_MAX} at the most"
        )
