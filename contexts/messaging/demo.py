"""The scenes of this context for `outbox demo`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

from contexts.messaging.events import GroupMessageStatus, ScheduledMessageStatus, SendType
from contexts.messaging.use_cases import (
    ChangeGroupMessageStatus,
    ChangeGroupMessageStatusHandler,
    CreateGroupMessage,
    CreateGroupMessageHandler,
    CreateScheduledMessage,
    CreateScheduledMessageHandler,
    UpdateScheduledMessage,
    UpdateScheduledMessageHandler,
)
from outbox_kernel.infrastructure.demo import Scene, Stage
from outbox_kernel.kernel.clock import using_clock
from outbox_kernel.testing import FrozenClock


async def a_group_message_is_cancelled(stage: Stage) -> None:
    """A message to groups is drafted, queued and cancelled: an event for each step."""
    account, draft = uuid4(), GroupMessageStatus.DRAFT
    message = await stage.container[CreateGroupMessageHandler].handle(
        CreateGroupMessage(
            account_id=account,
            channel_id=uuid4(),
            contact_group_ids=(uuid4(),),
            total_recipients=3,
            body="We open at nine.",
        )
    )
    stage.say("It is drafted with a text of its own, and not with a template's.")
    counts = await stage.show_counts("committed")
    stage.check("its text has become a template", holds=counts["message_templates"] == 1)
    # The second of two that are the same is no change.
    for status in (*[GroupMessageStatus.QUEUED] * 2, GroupMessageStatus.CANCELLED):
        await stage.container[ChangeGroupMessageStatusHandler].handle(
            ChangeGroupMessageStatus(account_id=account, message_id=message.id, status=status)
        )
    stage.say("It is queued, queued once more by a double click, and cancelled:")
    rows = await stage.show_events()
    stage.check(
        "created, queued, cancelled: the second click changed nothing and is no event",
        holds=_steps(rows) == ["group_message.created", "group_message.queued", "group_message.cancelled"],
    )
    passed = [row["payload"].get("previous_status", draft.value) for row in rows]
    stage.check("each names the status before it", holds=passed == ["draft", "draft", "queued"])


async def a_message_keeps_its_local_hour(stage: Stage) -> None:
    """A scheduled message is paused while the clocks change, and keeps its hour in its own time zone."""
    account, update = uuid4(), stage.container[UpdateScheduledMessageHandler]
    with using_clock(FrozenClock(_FRIDAY)) as clock:
        stage.say(
            f"For this scene it is {_FRIDAY:%A, %d %B %Y}. In {_ZONE.key} summer time begins on Sunday."
        )
        message = await stage.container[CreateScheduledMessageHandler].handle(_daily_at_six(account))
        await update.handle(
            UpdateScheduledMessage(
                account_id=account, message_id=message.id, status=ScheduledMessageStatus.PAUSED
            )
        )
        clock.set(_MONDAY)
        await update.handle(
            UpdateScheduledMessage(
                account_id=account,
                message_id=message.id,
                recurrence_rule="FREQ=WEEKLY;BYDAY=MO,FR",
                status=ScheduledMessageStatus.PENDING,
            )
        )
    stage.say(
        "Set for each day at six in the evening and paused; on Monday resumed, for Mondays and Fridays:"
    )
    rows = await stage.show_events()
    _check_moments(stage, rows)
    _check_order(stage, rows)


_ZONE = ZoneInfo("Europe/Berlin")
_FRIDAY = datetime(2025, 3, 28, 12, tzinfo=UTC)
_MONDAY = datetime(2025, 3, 31, 12, tzinfo=UTC)
_AT_SIX = datetime(2025, 3, 28, 18)  # noqa: DTZ001 - local time in the message's own zone


def _daily_at_six(account: UUID) -> CreateScheduledMessage:
    return CreateScheduledMessage(
        account_id=account,
        channel_id=uuid4(),
        send_type=SendType.GROUP,
        scheduled_at=_AT_SIX,
        timezone=_ZONE.key,
        recurrence_rule="FREQ=DAILY",
        body="We close in an hour.",
    )


def _check_moments(stage: Stage, rows: list[dict[str, Any]]) -> None:
    """Hold what the first event and the last say is next against the clocks there and in UTC."""
    due = [datetime.fromisoformat(rows[at]["payload"]["next_trigger_at"]) for at in (0, -1)]
    for moment in due:
        stage.say(f"Next on {moment.astimezone(_ZONE):%A at %H:%M} there, which is {moment:%H:%M} in UTC.")
    stage.check(
        "the same hour there, and another in UTC",
        holds=due == [_FRIDAY.replace(hour=17), _MONDAY.replace(hour=16)],
    )


def _check_order(stage: Stage, rows: list[dict[str, Any]]) -> None:
    stage.check(
        "one change of schedule and status is two events, the schedule's first",
        holds=_steps(rows) == [f"scheduled_message.{step}" for step in _SCHEDULED_STEPS],
    )
    changed = [row["payload"]["changed_fields"] for row in rows if "changed_fields" in row["payload"]]
    stage.check("it names the fields that changed", holds=changed == [["recurrence_rule", "next_trigger_at"]])


_SCHEDULED_STEPS = ("created", "paused", "updated", "resumed")


def _steps(rows: list[dict[str, Any]]) -> list[str]:
    return [row["event_type"] for row in rows]


SCENES: tuple[Scene, ...] = (a_group_message_is_cancelled, a_message_keeps_its_local_hour)
