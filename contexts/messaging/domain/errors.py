"""How this context says no: each a sentence that is fit to show, with a kind that programs may rely on."""

from __future__ import annotations

from enum import Enum
from uuid import UUID

from outbox_kernel import Conflict, DomainError, NotFound


class MessagingError(DomainError):
    """A rule of this context said no."""


class InvalidGroupMessage(MessagingError, ValueError):
    """A message to groups cannot be what was asked for."""

    kind = "invalid_group_message"


class InvalidTemplate(MessagingError, ValueError):
    """The text is none that a message could have."""

    kind = "invalid_template"


class UnknownTemplate(MessagingError):
    """The account has no such template."""

    kind = "unknown_template"

    def __init__(self, template_id: UUID) -> None:
        self.template_id = template_id
        super().__init__(
            f"this account has no template {template_id}: leave template_id out and give the text as body"
        )


class InvalidSchedule(MessagingError, ValueError):
    """The message cannot be sent at such a time."""

    kind = "invalid_schedule"


class InvalidRecurrenceRule(InvalidSchedule):
    """The text is no recurrence rule, or none that is served."""

    kind = "invalid_recurrence_rule"


class NothingAhead(InvalidSchedule):
    """The schedule has no moment left in the future."""

    kind = "nothing_ahead"

    def __init__(self) -> None:
        super().__init__(
            "the schedule has no moment left in the future: give a later scheduled_at, or a recurrence rule that "
            "goes on"
        )


class MessageNotFound(MessagingError, NotFound):
    """The account has no such message; another one may have."""

    kind = "message_not_found"

    def __init__(self, message_id: UUID) -> None:
        self.message_id = message_id
        super().__init__(f"this account has no message {message_id}: the id is wrong, or another account's")


class IllegalTransition(MessagingError, Conflict):
    """What the message has become does not allow it."""

    kind = "illegal_transition"

    def __init__(self, present: Enum, wanted: str, ways: str) -> None:
        self.present, self.wanted = present, wanted
        super().__init__(f"a message that is {present.value} cannot {wanted}: {ways}")
