"""Messages to groups over HTTP."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from contexts.messaging.events import GroupMessageStatus
from contexts.messaging.use_cases import (
    ChangeGroupMessageStatus,
    ChangeGroupMessageStatusHandler,
    CreateGroupMessage,
    CreateGroupMessageHandler,
    FindGroupMessage,
    FindGroupMessageHandler,
)
from outbox_kernel.infrastructure.http import (
    CurrentPrincipal,
    JsonBody,
    Moment,
    Provided,
    WholeNumber,
    refusals,
)

router = APIRouter(prefix="/group-messages", tags=["group messages"])

MessageId = Annotated[UUID, Field(examples=["0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3"])]


class CreateGroupMessageBody(JsonBody):
    """The message to draft: with the `template_id` of a text that is there, or with a `body` for a new one."""

    channel_id: Annotated[UUID, Field(examples=["0192f0c1-2d3e-7a4b-8c5d-000000000001"])]
    contact_group_ids: Annotated[tuple[UUID, ...], Field(examples=[["0192f0c1-2d3e-7a4b-8c5d-000000000002"]])]
    total_recipients: Annotated[WholeNumber, Field(examples=[12])]
    template_id: UUID | None = None
    body: Annotated[str | None, Field(examples=["The choir meets at eight."])] = None
    scheduled_at: Moment | None = None


class ChangeGroupMessageBody(JsonBody):
    """What the message is to become."""

    status: Annotated[GroupMessageStatus, Field(examples=["queued"])]


class GroupMessageBody(BaseModel):
    """A message to groups."""

    model_config = ConfigDict(from_attributes=True)

    id: MessageId
    account_id: UUID
    channel_id: UUID
    template_id: UUID
    status: GroupMessageStatus
    contact_group_ids: tuple[UUID, ...]
    total_recipients: int
    scheduled_at: Moment | None


@router.post("", status_code=201, summary="Draft a message", responses=refusals(403))
async def create(
    body: CreateGroupMessageBody,
    me: CurrentPrincipal,
    use_case: Annotated[CreateGroupMessageHandler, Provided(CreateGroupMessageHandler)],
    response: Response,
) -> GroupMessageBody:
    """Draft a message; it is not sent before it is queued."""
    message = await use_case.handle(CreateGroupMessage(account_id=me.uuid, **dict(body)))
    response.headers["location"] = f"{router.prefix}/{message.id}"
    return GroupMessageBody.model_validate(message)


@router.get("/{message_id}", summary="Look at a message", responses=refusals(403, 404))
async def find(
    message_id: MessageId,
    me: CurrentPrincipal,
    use_case: Annotated[FindGroupMessageHandler, Provided(FindGroupMessageHandler)],
) -> GroupMessageBody:
    """Return the message."""
    message = await use_case.handle(FindGroupMessage(account_id=me.uuid, message_id=message_id))
    return GroupMessageBody.model_validate(message)


@router.patch("/{message_id}", summary="Move a message on", responses=refusals(403, 404, 409))
async def change(
    message_id: MessageId,
    body: ChangeGroupMessageBody,
    me: CurrentPrincipal,
    use_case: Annotated[ChangeGroupMessageStatusHandler, Provided(ChangeGroupMessageStatusHandler)],
) -> GroupMessageBody:
    """Queue the message, start it, say how it ended, or cancel it; the status it has already is no change."""
    command = ChangeGroupMessageStatus(account_id=me.uuid, message_id=message_id, status=body.status)
    return GroupMessageBody.model_validate(await use_case.handle(command))
