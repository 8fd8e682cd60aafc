"""What this context does when something has happened, on the machine that consumes its queue."""

from __future__ import annotations

import logging

from contexts.messaging.events import GroupMessageCreated, GroupMessageQueued
from outbox_kernel import handles

_log = logging.getLogger(__name__)


@handles(GroupMessageCreated, GroupMessageQueued, queue="group_message_processing")
class LogGroupMessage:
    """Leaves a line in the log of whoever consumes the queue: here sending begins in a real application."""

    async def handle(self, event: GroupMessageCreated | GroupMessageQueued) -> None:
        """Log which message, and how far it has come."""
        _log.info(
            "group message %s",
            event.status.value,
            extra={
                "action": "messaging.group_message",
                "event_id": str(event.event_id),
                "message_id": str(event.id),
            },
        )
