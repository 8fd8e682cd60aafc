"""A message that is sent when its time comes, and what may become of it before."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from contexts.messaging.domain.errors import IllegalTransition, NothingAhead
from contexts.messaging.domain.schedule import UNCHANGED, Schedule, Unchanged
from contexts.messaging.events import (
    ScheduledMessageCancelled,
    ScheduledMessageCreated,
    ScheduledMessagePaused,
    ScheduledMessageResumed,
    ScheduledMessageStatus,
    ScheduledMessageUpdated,
    SendType,
)
from outbox_kernel import AggregateRoot, aggregate, clock

_PENDING, _PAUSED = ScheduledMessageStatus.PENDING, ScheduledMessageStatus.PAUSED
_CANCELLED = ScheduledMessageStatus.CANCELLED


@aggregate("scheduled_message")
class ScheduledMessage(AggregateRoot):
    """A message with a schedule."""

    id: UUID
    account_id: UUID
    channel_id: UUID
    template_id: UUID
    send_type: SendType
    status: ScheduledMessageStatus
    scheduled_at: datetime
    timezone: str
    recurrence_rule: str | None
    next_trigger_at: datetime | None
    """When it is due, by its schedule; a paused message keeps it and is not sent, a cancelled one has none."""

    @classmethod
    def create(
        cls,
        account_id: UUID,
        channel_id: UUID,
        template_id: UUID,
        send_type: SendType,
        *,
        scheduled_at: datetime,
        timezone: str,
        recurrence_rule: str | None = None,
    ) -> ScheduledMessage:
        """Set a message to be sent; its schedule needs a moment in the future."""
        now = clock.now()
        schedule = Schedule.of(scheduled_at, timezone, recurrence_rule, now)
        next_trigger_at = _next(schedule, now)
        message = cls(
            uuid4(),
            account_id,
            channel_id,
            template_id,
            send_type,
            _PENDING,
            schedule.scheduled_at,
            schedule.timezone,
            schedule.recurrence_rule,
            next_trigger_at,
        )
        message.record(
            ScheduledMessageCreated(
                channel_id=channel_id,
                template_id=template_id,
                send_type=send_type,
                status=message.status,
                **message._planned(next_trigger_at),
            )
        )
        return message

    @property
    def is_recurring(self) -> bool:
        """Whether it is sent again and again."""
        return self.recurrence_rule is not None

    def reschedule(
        self,
        scheduled_at: datetime | Unchanged = UNCHANGED,
        timezone: str | Unchanged = UNCHANGED,
        recurrence_rule: str | Unchanged | None = UNCHANGED,
    ) -> None:
        """Take another schedule; one that comes to the same is no change."""
        now, present = clock.now(), Schedule(self.scheduled_at, self.timezone, self.recurrence_rule)
        schedule = present.changed(scheduled_at, timezone, recurrence_rule, now)
        if schedule == present:
            return
        if self.status is _CANCELLED:
            raise _cancelled("be scheduled anew")
        next_trigger_at = _next(schedule, now)
        before = self._planned(self.next_trigger_at)
        self.scheduled_at, self.timezone = schedule.scheduled_at, schedule.timezone
        self.recurrence_rule, self.next_trigger_at = schedule.recurrence_rule, next_trigger_at
        after = self._planned(next_trigger_at)
        changed = tuple(name for name, value in after.items() if value != before[name])
        self.record(ScheduledMessageUpdated(**after, changed_fields=changed))

    def change_status(self, status: ScheduledMessageStatus) -> None:
        """Pause, resume (`pending`) or cancel it; the status it has already is no change."""
        if status is self.status:
            return
        if self.status is _CANCELLED:
            raise _cancelled(f"become {status.value}")
        if status is _PENDING:
            self._resume()
        elif status is _PAUSED:
            self.status = _PAUSED
            self.record(ScheduledMessagePaused(self.id, self.account_id, _PAUSED, _PENDING))
        else:
            previous, self.status, self.next_trigger_at = self.status, _CANCELLED, None
            self.record(ScheduledMessageCancelled(self.id, self.account_id, _CANCELLED, previous))

    def _resume(self) -> None:
        schedule = Schedule(self.scheduled_at, self.timezone, self.recurrence_rule)
        next_trigger_at = _next(schedule, clock.now())
        self.status, self.next_trigger_at = _PENDING, next_trigger_at
        self.record(ScheduledMessageResumed(self.id, self.account_id, _PENDING, _PAUSED, next_trigger_at))

    def _planned(self, next_trigger_at: datetime | None) -> dict[str, Any]:
        return {
            "id": self.id,
            "account_id": self.account_id,
            "scheduled_at": self.scheduled_at,
            "timezone": self.timezone,
            "is_recurring": self.is_recurring,
            "recurrence_rule": self.recurrence_rule,
            "next_trigger_at": next_trigger_at,
        }


def _next(schedule: Schedule, now: datetime) -> datetime:
    moment = schedule.next_after(now)
    if moment is None:
        raise NothingAhead
    return moment


def _cancelled(wanted: str) -> IllegalTransition:
    return IllegalTransition(_CANCELLED, wanted, "this is its end, so make a new one")
