"""What this context publishes: the only room that another context may import."""

from __future__ import annotations

from enum import Enum
from uuid import UUID

from outbox_kernel import DomainEvent, event, sensitive


class AccountRole(Enum):
    """What the holder of an account may do."""

    MEMBER = "member"
    ADMIN = "admin"


# The addresses are plain text: a stored event must stay readable when the rules for a valid one change.


@event
class AccountCreated(DomainEvent):
    """Somebody signed up."""

    account_id: UUID
    email: str = sensitive(subject="account_id")
    role: AccountRole


@event
class AccountEmailChanged(DomainEvent):
    """The holder is reached, and signs in, by another address from now on."""

    account_id: UUID
    email: str = sensitive(subject="account_id")
