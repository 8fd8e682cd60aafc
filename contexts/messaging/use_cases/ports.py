"""What the use cases ask of the world: their unit of work; and what they have in common."""

from __future__ import annotations

from typing import Protocol, TypeVar
from uuid import UUID

from contexts.messaging.domain import (
    GroupMessage,
    InvalidTemplate,
    MessageNotFound,
    ScheduledMessage,
    Template,
    UnknownTemplate,
)
from outbox_kernel import Repository, UnitOfWork

M = TypeVar("M", GroupMessage, ScheduledMessage)


class MessagingUnitOfWork(UnitOfWork, Protocol):
    """The unit of work of this context."""

    @property
    def group_messages(self) -> Repository[GroupMessage]:
        """All messages to groups."""

    @property
    def scheduled_messages(self) -> Repository[ScheduledMessage]:
        """All scheduled messages."""

    @property
    def templates(self) -> Repository[Template]:
        """All templates."""


async def message_of(account_id: UUID, message_id: UUID, messages: Repository[M]) -> M:
    """Return a message of this account, or raise MessageNotFound: another's is none of its business."""
    message = await messages.get(message_id)
    if message is None or message.account_id != account_id:
        raise MessageNotFound(message_id)
    return message


async def template_for(
    uow: MessagingUnitOfWork, account_id: UUID, template_id: UUID | None, body: str | None
) -> Template:
    """Return the template of the account that was named, or a new one of the text that was given instead."""
    if body is not None and template_id is None:
        template = Template.write(account_id, body)
        uow.templates.add(template)
        return template
    if template_id is None or body is not None:
        raise InvalidTemplate("a message has one text: give either the template_id of one, or a new body")
    found = await uow.templates.get(template_id)
    if found is None or found.account_id != account_id:
        raise UnknownTemplate(template_id)
    return found
