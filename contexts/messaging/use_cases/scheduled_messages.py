"""Setting messages to be sent later, and changing when, and whether at all."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import attrs

from contexts.messaging.domain import UNCHANGED, ScheduledMessage, Unchanged
from contexts.messaging.events import ScheduledMessageStatus, SendType
from contexts.messaging.use_cases.ports import MessagingUnitOfWork, message_of, template_for
from outbox_kernel import retry_on_conflict


@attrs.frozen(kw_only=True)
class CreateScheduledMessage:
    """Have a message sent at `scheduled_at`, and with a recurrence rule again and again from then on.

    A `scheduled_at` without an offset is local time in `timezone`.
    """

    account_id: UUID
    channel_id: UUID
    send_type: SendType
    scheduled_at: datetime
    timezone: str
    recurrence_rule: str | None = None
    template_id: UUID | None = None
    body: str | None = None


@attrs.frozen
class CreateScheduledMessageHandler:
    """Sets messages to be sent later."""

    uow: MessagingUnitOfWork

    async def handle(self, command: CreateScheduledMessage) -> ScheduledMessage:
        """Set the message and return it, or raise InvalidSchedule, InvalidTemplate or UnknownTemplate."""
        async with self.uow as uow:
            template = await template_for(uow, command.account_id, command.template_id, command.body)
            message = ScheduledMessage.create(
                command.account_id,
                command.channel_id,
                template.id,
                command.send_type,
                scheduled_at=command.scheduled_at,
                timezone=command.timezone,
                recurrence_rule=command.recurrence_rule,
            )
            uow.scheduled_messages.add(message)
            await uow.commit()
        return message


@attrs.frozen(kw_only=True)
class UpdateScheduledMessage:
    """Change the schedule, the status (`pending` resumes it), or both; what is not given stays as it is.

    A `recurrence_rule` of None ends the recurrence.
    """

    account_id: UUID
    message_id: UUID
    scheduled_at: datetime | Unchanged = UNCHANGED
    timezone: str | Unchanged = UNCHANGED
    recurrence_rule: str | Unchanged | None = UNCHANGED
    status: ScheduledMessageStatus | Unchanged = UNCHANGED


@attrs.frozen
class UpdateScheduledMessageHandler:
    """Changes when messages are sent, and whether."""

    uow: MessagingUnitOfWork

    # Two may do it at once: whoever comes second begins again, on what the first left.
    @retry_on_conflict
    async def handle(self, command: UpdateScheduledMessage) -> ScheduledMessage:
        """Change the message and return it, or raise MessageNotFound, InvalidSchedule or IllegalTransition."""
        async with self.uow as uow:
            message = await message_of(command.account_id, command.message_id, uow.scheduled_messages)
            # The schedule first: what is resumed goes on by the new one.
            message.reschedule(command.scheduled_at, command.timezone, command.recurrence_rule)
            if command.status is not UNCHANGED:
                message.change_status(command.status)
            await uow.commit()
        return message


@attrs.frozen(kw_only=True)
class FindScheduledMessage:
    """Look at one message."""

    account_id: UUID
    message_id: UUID


@attrs.frozen
class FindScheduledMessageHandler:
    """Finds scheduled messages."""

    uow: MessagingUnitOfWork

    async def handle(self, query: FindScheduledMessage) -> ScheduledMessage:
        """Return the message, to read, or raise MessageNotFound."""
        async with self.uow as uow:
            return await message_of(query.account_id, query.message_id, uow.scheduled_messages)
