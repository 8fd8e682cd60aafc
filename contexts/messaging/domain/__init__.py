"""Messages, their schedules and their rules."""

from contexts.messaging.domain.errors import (
    IllegalTransition,
    InvalidGroupMessage,
    InvalidRecurrenceRule,
    InvalidSchedule,
    InvalidTemplate,
    MessageNotFound,
    MessagingError,
    NothingAhead,
    UnknownTemplate,
)
from contexts.messaging.domain.group_message import GroupMessage
from contexts.messaging.domain.recurrence import RecurrenceRule
from contexts.messaging.domain.schedule import UNCHANGED, Schedule, Unchanged
from contexts.messaging.domain.scheduled_message import ScheduledMessage
from contexts.messaging.domain.template import Template

__all__ = [
    "UNCHANGED",
    "GroupMessage",
    "IllegalTransition",
    "InvalidGroupMessage",
    "InvalidRecurrenceRule",
    "InvalidSchedule",
    "InvalidTemplate",
    "MessageNotFound",
    "MessagingError",
    "NothingAhead",
    "RecurrenceRule",
    "Schedule",
    "ScheduledMessage",
    "Template",
    "Unchanged",
    "UnknownTemplate",
]
