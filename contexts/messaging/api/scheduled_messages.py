"""Scheduled messages over HTTP."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from contexts.messaging.events import ScheduledMessageStatus, SendType
from contexts.messaging.use_cases import (
    CreateScheduledMessage,
    CreateScheduledMessageHandler,
    FindScheduledMessage,
    FindScheduledMessageHandler,
    UpdateScheduledMessage,
    UpdateScheduledMessageHandler,
)
from outbox_kernel.infrastructure.http import CurrentPrincipal, JsonBody, Moment, Provided, left_out, refusals

router = APIRouter(prefix="/scheduled-messages", tags=["scheduled messages"])

MessageId = Annotated[UUID, Field(examples=["0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3"])]
TimeZone = Annotated[str, Field(examples=["Europe/Berlin"])]
Rule = Annotated[str | None, Field(examples=["FREQ=WEEKLY;BYDAY=MO"])]


class CreateScheduledMessageBody(JsonBody):
    """The message to send later: with the `template_id` of a text that is there, or with a `body` for a new one.

    A `scheduled_at` without an offset is local time in `timezone`.
    """

    channel_id: Annotated[UUID, Field(examples=["0192f0c1-2d3e-7a4b-8c5d-000000000001"])]
    send_type: Annotated[SendType, Field(examples=["group"])]
    scheduled_at: Moment
    timezone: TimeZone
    recurrence_rule: Rule = None
    template_id: UUID | None = None
    body: Annotated[str | None, Field(examples=["The choir meets at eight."])] = None


class UpdateScheduledMessageBody(JsonBody):
    """What is to be different; what is left out stays. A `recurrence_rule` of null ends the recurrence."""

    scheduled_at: Moment = left_out()
    timezone: TimeZone = left_out()
    recurrence_rule: Rule = left_out()
    status: Annotated[ScheduledMessageStatus, Field(examples=["paused"])] = left_out()


class ScheduledMessageBody(BaseModel):
    """A scheduled message; its moments are in UTC."""

    model_config = ConfigDict(from_attributes=True)

    id: MessageId
    account_id: UUID
    channel_id: UUID
    template_id: UUID
    send_type: SendType
    status: ScheduledMessageStatus
    scheduled_at: Moment
    timezone: TimeZone
    is_recurring: bool
    recurrence_rule: Rule
    next_trigger_at: Moment | None


@router.post("", status_code=201, summary="Set a message to be sent later", responses=refusals(403))
async def create(
    body: CreateScheduledMessageBody,
    me: CurrentPrincipal,
    use_case: Annotated[CreateScheduledMessageHandler, Provided(CreateScheduledMessageHandler)],
    response: Response,
) -> ScheduledMessageBody:
    """Have the message sent at its time, and with a recurrence rule again and again from then on."""
    message = await use_case.handle(CreateScheduledMessage(account_id=me.uuid, **dict(body)))
    response.headers["location"] = f"{router.prefix}/{message.id}"
    return ScheduledMessageBody.model_validate(message)


@router.get("/{message_id}", summary="Look at a message", responses=refusals(403, 404))
async def find(
    message_id: MessageId,
    me: CurrentPrincipal,
    use_case: Annotated[FindScheduledMessageHandler, Provided(FindScheduledMessageHandler)],
) -> ScheduledMessageBody:
    """Return the message."""
    message = await use_case.handle(FindScheduledMessage(account_id=me.uuid, message_id=message_id))
    return ScheduledMessageBody.model_validate(message)


@router.patch("/{message_id}", summary="Change schedule and status", responses=refusals(403, 404, 409))
async def update(
    message_id: MessageId,
    body: UpdateScheduledMessageBody,
    me: CurrentPrincipal,
    use_case: Annotated[UpdateScheduledMessageHandler, Provided(UpdateScheduledMessageHandler)],
) -> ScheduledMessageBody:
    """Change the schedule, the status, or both: pause it, resume it (`pending`) or cancel it."""
    command = UpdateScheduledMessage(account_id=me.uuid, message_id=message_id, **body.given())
    return ScheduledMessageBody.model_validate(await use_case.handle(command))
