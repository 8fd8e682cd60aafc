"""What this context publishes: the only room that another context may import.

The names begin with `group_message.` and `scheduled_message.`: by these patterns the broker's publisher selects
them. Templates are this context's own affair and publish nothing.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from uuid import UUID

from outbox_kernel import DomainEvent, event


class GroupMessageStatus(Enum):
    """How far a message to groups has come."""

    DRAFT = "draft"
    QUEUED = "queued"
    PROCESSING = "processing"
    SENT = "sent"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ScheduledMessageStatus(Enum):
    """Whether a scheduled message is sent when its time comes."""

    PENDING = "pending"
    PAUSED = "paused"
    CANCELLED = "cancelled"


class SendType(Enum):
    """To whom a scheduled message goes: to everybody on its channel at once, or to each on their own."""

    GROUP = "group"
    INDIVIDUAL = "individual"


# --- group messages: `group_message.created`, then `group_message.<status>` for each transition --------------


@event("group_message.created")
class GroupMessageCreated(DomainEvent):
    """Somebody has drafted a message to groups of contacts."""

    id: UUID
    account_id: UUID
    channel_id: UUID
    template_id: UUID
    status: GroupMessageStatus
    contact_group_ids: tuple[UUID, ...]
    total_recipients: int
    scheduled_at: datetime | None


@event("group_message.queued")
class GroupMessageQueued(DomainEvent):
    """It waits to be sent, for the first time or again after a failure."""

    id: UUID
    account_id: UUID
    status: GroupMessageStatus
    previous_status: GroupMessageStatus


@event("group_message.processing")
class GroupMessageProcessing(DomainEvent):
    """It is being sent."""

    id: UUID
    account_id: UUID
    status: GroupMessageStatus
    previous_status: GroupMessageStatus


@event("group_message.sent")
class GroupMessageSent(DomainEvent):
    """It has been sent to all."""

    id: UUID
    account_id: UUID
    status: GroupMessageStatus
    previous_status: GroupMessageStatus


@event("group_message.failed")
class GroupMessageFailed(DomainEvent):
    """Sending it has failed."""

    id: UUID
    account_id: UUID
    status: GroupMessageStatus
    previous_status: GroupMessageStatus


@event("group_message.cancelled")
class GroupMessageCancelled(DomainEvent):
    """It will not be sent."""

    id: UUID
    account_id: UUID
    status: GroupMessageStatus
    previous_status: GroupMessageStatus


# --- scheduled messages ---------------------------------------------------------------------------------------


@event("scheduled_message.created")
class ScheduledMessageCreated(DomainEvent):
    """Somebody has set a message to be sent later; every moment in it is in UTC."""

    id: UUID
    account_id: UUID
    channel_id: UUID
    template_id: UUID
    send_type: SendType
    status: ScheduledMessageStatus
    scheduled_at: datetime
    timezone: str
    is_recurring: bool
    recurrence_rule: str | None
    next_trigger_at: datetime


@event("scheduled_message.updated")
class ScheduledMessageUpdated(DomainEvent):
    """Its schedule is another; `changed_fields` names those of the five fields above it that differ from before."""

    id: UUID
    account_id: UUID
    scheduled_at: datetime
    timezone: str
    is_recurring: bool
    recurrence_rule: str | None
    next_trigger_at: datetime
    changed_fields: tuple[str, ...]


@event("scheduled_message.paused")
class ScheduledMessagePaused(DomainEvent):
    """It is not sent until it is resumed."""

    id: UUID
    account_id: UUID
    status: ScheduledMessageStatus
    previous_status: ScheduledMessageStatus


@event("scheduled_message.resumed")
class ScheduledMessageResumed(DomainEvent):
    """It is sent again when its time comes, which is next at `next_trigger_at`."""

    id: UUID
    account_id: UUID
    status: ScheduledMessageStatus
    previous_status: ScheduledMessageStatus
    next_trigger_at: datetime


@event("scheduled_message.cancelled")
class ScheduledMessageCancelled(DomainEvent):
    """It is never sent again."""

    id: UUID
    account_id: UUID
    status: ScheduledMessageStatus
    previous_status: ScheduledMessageStatus
