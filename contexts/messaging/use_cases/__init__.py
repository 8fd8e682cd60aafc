"""What this context can be asked to do: a command or a query each, with its handler."""

from contexts.messaging.use_cases.group_messages import (
    ChangeGroupMessageStatus,
    ChangeGroupMessageStatusHandler,
    CreateGroupMessage,
    CreateGroupMessageHandler,
    FindGroupMessage,
    FindGroupMessageHandler,
)
from contexts.messaging.use_cases.ports import MessagingUnitOfWork
from contexts.messaging.use_cases.scheduled_messages import (
    CreateScheduledMessage,
    CreateScheduledMessageHandler,
    FindScheduledMessage,
    FindScheduledMessageHandler,
    UpdateScheduledMessage,
    UpdateScheduledMessageHandler,
)

__all__ = [
    "ChangeGroupMessageStatus",
    "ChangeGroupMessageStatusHandler",
    "CreateGroupMessage",
    "CreateGroupMessageHandler",
    "CreateScheduledMessage",
    "CreateScheduledMessageHandler",
    "FindGroupMessage",
    "FindGroupMessageHandler",
    "FindScheduledMessage",
    "FindScheduledMessageHandler",
    "MessagingUnitOfWork",
    "UpdateScheduledMessage",
    "UpdateScheduledMessageHandler",
]
