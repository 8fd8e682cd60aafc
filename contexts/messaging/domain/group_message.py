"""A message to groups of contacts, and how it goes from a draft to its end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID, uuid4

from contexts.messaging.domain.errors import IllegalTransition, InvalidGroupMessage
from contexts.messaging.domain.schedule import refusal_of_year
from contexts.messaging.events import (
    GroupMessageCancelled,
    GroupMessageCreated,
    GroupMessageFailed,
    GroupMessageProcessing,
    GroupMessageQueued,
    GroupMessageSent,
    GroupMessageStatus,
)
from outbox_kernel import AggregateRoot, aggregate, clock

CONTACT_GROUPS_MAX = 1_000
RECIPIENTS_MAX = 10_000_000

_DRAFT, _QUEUED = GroupMessageStatus.DRAFT, GroupMessageStatus.QUEUED
_PROCESSING, _SENT = GroupMessageStatus.PROCESSING, GroupMessageStatus.SENT
_FAILED, _CANCELLED = GroupMessageStatus.FAILED, GroupMessageStatus.CANCELLED

# What is being sent cannot be called back, and what failed may be tried again.
_WAYS: dict[GroupMessageStatus, tuple[GroupMessageStatus, ...]] = {
    _DRAFT: (_QUEUED, _CANCELLED),
    _QUEUED: (_PROCESSING, _CANCELLED),
    _PROCESSING: (_SENT, _FAILED),
    _FAILED: (_QUEUED, _CANCELLED),
    _SENT: (),
    _CANCELLED: (),
}

_EVENTS = {
    _QUEUED: GroupMessageQueued,
    _PROCESSING: GroupMessageProcessing,
    _SENT: GroupMessageSent,
    _FAILED: GroupMessageFailed,
    _CANCELLED: GroupMessageCancelled,
}


@aggregate("group_message")
class GroupMessage(AggregateRoot):
    """A message to all contacts of some groups."""

    id: UUID
    account_id: UUID
    channel_id: UUID
    template_id: UUID
    status: GroupMessageStatus
    contact_group_ids: tuple[UUID, ...]
    total_recipients: int
    scheduled_at: datetime | None

    @classmethod
    def draft(
        cls,
        account_id: UUID,
        channel_id: UUID,
        template_id: UUID,
        *,
        contact_group_ids: Sequence[UUID],
        total_recipients: int,
        scheduled_at: datetime | None = None,
    ) -> GroupMessage:
        """Make a message that is not sent before it is queued."""
        _check_groups(contact_group_ids)
        _check_recipients(total_recipients)
        message = cls(
            uuid4(),
            account_id,
            channel_id,
            template_id,
            _DRAFT,
            tuple(contact_group_ids),
            total_recipients,
            _in_utc(scheduled_at),
        )
        message.record(
            GroupMessageCreated(
                message.id,
                account_id,
                channel_id,
                template_id,
                message.status,
                message.contact_group_ids,
                total_recipients,
                message.scheduled_at,
            )
        )
        return message

    def change_status(self, status: GroupMessageStatus) -> None:
        """Go on to another status, or raise IllegalTransition; the one it has already is no change."""
        if status is self.status:
            return
        ways = _WAYS[self.status]
        if status not in ways:
            raise IllegalTransition(self.status, f"become {status.value}", _told(ways))
        previous, self.status = self.status, status
        self.record(_EVENTS[status](self.id, self.account_id, status, previous))


def _told(ways: tuple[GroupMessageStatus, ...]) -> str:
    names = " or ".join(way.value for way in ways)
    return f"it can become {names}" if ways else "this is its end, so make a new one"


def _check_groups(groups: Sequence[UUID]) -> None:
    if not groups:
        raise InvalidGroupMessage("the message goes to no group: give at least one of contact_group_ids")
    if len(groups) > CONTACT_GROUPS_MAX:
        raise InvalidGroupMessage(
            f"the message goes to {len(groups):,} groups, and {CONTACT_GROUPS_MAX:,} are the limit: split it"
        )
    if len(set(groups)) < len(groups):
        raise InvalidGroupMessage("a group is named twice in contact_group_ids: name each once")


def _check_recipients(number: int) -> None:
    if not 0 <= number <= RECIPIENTS_MAX:
        raise InvalidGroupMessage(
            f"total_recipients is {number:,}: give how many contacts the groups have, from 0 to {RECIPIENTS_MAX:,}"
        )


def _in_utc(moment: datetime | None) -> datetime | None:
    if moment is None:
        return None
    if moment.utcoffset() is None:
        raise InvalidGroupMessage(
            "scheduled_at has no offset from UTC: write it like 2030-05-17T09:00:00+02:00"
        )
    if (refusal := refusal_of_year(moment, clock.now())) is not None:
        raise InvalidGroupMessage(refusal)
    return moment.astimezone(UTC)
