"""What this context does when something has happened."""

from __future__ import annotations

import logging

from contexts.accounts.events import AccountCreated
from outbox_kernel import handles

_log = logging.getLogger(__name__)


@handles(AccountCreated)
class LogAccountCreated:
    """Leaves a line in the log; the address stays out of it."""

    async def handle(self, event: AccountCreated) -> None:
        """Log who, by id, and as what."""
        _log.info(
            "account created",
            extra={
                "action": "accounts.account_created",
                "event_id": str(event.event_id),
                "account_id": str(event.account_id),
                "role": event.role.value,
            },
        )
