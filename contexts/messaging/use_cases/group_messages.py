"""Drafting messages to groups, and moving them on."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import attrs

from contexts.messaging.domain import GroupMessage
from contexts.messaging.events import GroupMessageStatus
from contexts.messaging.use_cases.ports import MessagingUnitOfWork, message_of, template_for
from outbox_kernel import retry_on_conflict


@attrs.frozen(kw_only=True)
class CreateGroupMessage:
    """Draft a message to groups: with the `template_id` of a text that is there, or with a `body` for a new one."""

    account_id: UUID
    channel_id: UUID
    contact_group_ids: tuple[UUID, ...]
    total_recipients: int
    template_id: UUID | None = None
    body: str | None = None
    scheduled_at: datetime | None = None


@attrs.frozen
class CreateGroupMessageHandler:
    """Drafts messages to groups."""

    uow: MessagingUnitOfWork

    async def handle(self, command: CreateGroupMessage) -> GroupMessage:
        """Draft the message and return it, or raise InvalidGroupMessage, InvalidTemplate or UnknownTemplate."""
        async with self.uow as uow:
            template = await template_for(uow, command.account_id, command.template_id, command.body)
            message = GroupMessage.draft(
                command.account_id,
                command.channel_id,
                template.id,
                contact_group_ids=command.contact_group_ids,
                total_recipients=command.total_recipients,
                scheduled_at=command.scheduled_at,
            )
            uow.group_messages.add(message)
            await uow.commit()
        return message


@attrs.frozen(kw_only=True)
class ChangeGroupMessageStatus:
    """Queue a message, start it, say how it ended, or cancel it."""

    account_id: UUID
    message_id: UUID
    status: GroupMessageStatus


@attrs.frozen
class ChangeGroupMessageStatusHandler:
    """Moves messages to groups on."""

    uow: MessagingUnitOfWork

    # A sender and its owner may do it at once: whoever comes second begins again, on what the first left.
    @retry_on_conflict
    async def handle(self, command: ChangeGroupMessageStatus) -> GroupMessage:
        """Change the status and return the message, or raise MessageNotFound or IllegalTransition."""
        async with self.uow as uow:
            message = await message_of(command.account_id, command.message_id, uow.group_messages)
            message.change_status(command.status)
            await uow.commit()
        return message


@attrs.frozen(kw_only=True)
class FindGroupMessage:
    """Look at one message."""

    account_id: UUID
    message_id: UUID


@attrs.frozen
class FindGroupMessageHandler:
    """Finds messages to groups."""

    uow: MessagingUnitOfWork

    async def handle(self, query: FindGroupMessage) -> GroupMessage:
        """Return the message, to read, or raise MessageNotFound."""
        async with self.uow as uow:
            return await message_of(query.account_id, query.message_id, uow.group_messages)
