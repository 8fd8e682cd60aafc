"""How an invitation stands."""

from __future__ import annotations

from enum import Enum


class InvitationStatus(Enum):
    """Open until it ends, once, in one of three ways."""

    OPEN = "open"
    ACCEPTED = "accepted"
    REVOKED = "revoked"
    EXPIRED = "expired"
