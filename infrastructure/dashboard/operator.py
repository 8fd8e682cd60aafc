"""Who asks, and what that one may do."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.errors import ArgumentRefused

if TYPE_CHECKING:
    from collections.abc import Iterable


class Right(StrEnum):
    """What an operator may be allowed to do."""

    VIEW = "view"
    """See pages; without it nothing is shown."""
    PAYLOAD = "payload"
    """See what events say, secrets masked, and search in it."""
    RETRY = "retry"
    """Have deliveries run again, and a subscription go back."""
    SKIP = "skip"
    """Let deliveries go without their effect."""
    PAUSE = "pause"
    """Hold a subscription, and let it go on."""
    PURGE = "purge"
    """End for good: delivered events that are old, and subscriptions that nobody carries."""


ALL_RIGHTS = frozenset(Right)


def _rights(given: Iterable[str]) -> frozenset[Right]:
    words = (given,) if isinstance(given, str) else tuple(given)
    unknown = [word for word in words if word not in set(Right)]
    if unknown:
        raise ArgumentRefused(
            "rights", f"names {unknown[0]!r}, and there is none such: choose from {', '.join(Right)}"
        )
    return frozenset(map(Right, words))


@attrs.frozen
class Operator:
    """Somebody whom `authorize` has let in, by the name that the log is to have; without rights, to look only."""

    who: str
    rights: frozenset[Right] = attrs.field(default=(Right.VIEW,), converter=_rights)

    def may(self, right: Right) -> bool:
        """Whether that is allowed."""
        return Right.VIEW in self.rights and right in self.rights


AT_THIS_MACHINE = Operator("somebody at this machine", ALL_RIGHTS)
"""Who asks where nobody says otherwise: only this machine itself is answered then."""
