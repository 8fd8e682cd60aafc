"""The scenes of this context for `outbox demo`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

from contexts.messaging.domain import ScheduledMessage
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
from infrastructure.demo import Scene, Stage
from kernel.clock import using_clock
from kernel.testing import FrozenClock


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
    counts = await stage.show_counts("drafted, with a text and no template")
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
    account = uuid4()
    update = stage.container[UpdateScheduledMessageHandler]
    with using_clock(FrozenClock(_FRIDAY)) as clock:
        stage.say(
            f"By this scene's clock it is {_FRIDAY:%A, %d %B %Y}; {_BERLIN.key} puts its own on on Sunday."
        )
        message = await stage.container[CreateScheduledMessageHandler].handle(
            CreateScheduledMessage(
                account_id=account,
                channel_id=uuid4(),
                send_type=SendType.GROUP,
                scheduled_at=_AT_SIX,
                timezone=_BERLIN.key,
                recurrence_rule="FREQ=DAILY",
                body="The shop closes in an hour.",
            )
        )
        before = _told(stage, "Created to be sent daily", message)
        change = UpdateScheduledMessage(account_id=account, message_id=message.id, status=_PAUSED)
        await update.handle(change)
        clock.set(_MONDAY)
        change = UpdateScheduledMessage(
            account_id=account,
            message_id=message.id,
            recurrence_rule="FREQ=WEEKLY;BYDAY=MO,FR",
            status=ScheduledMessageStatus.PENDING,
        )
        after = _told(stage, "Resumed on Monday, to be sent Mondays and Fridays", await update.handle(change))
    rows = await stage.show_events()
    _check(stage, rows, before, after)


_PAUSED = ScheduledMessageStatus.PAUSED
_BERLIN = ZoneInfo("Europe/Berlin")
# The clocks there went from 02:00 to 03:00 on the Sunday between.
_FRIDAY = datetime(2025, 3, 28, 12, tzinfo=UTC)
_MONDAY = datetime(2025, 3, 31, 12, tzinfo=UTC)
_AT_SIX = datetime(2025, 3, 28, 18)  # noqa: DTZ001 - local time in the message's own zone


def _told(stage: Stage, what: str, message: ScheduledMessage) -> datetime | None:
    """Say when a message is due next, and return it."""
    due = message.next_trigger_at
    if due is not None:
        stage.say(f"{what}: next at {due.astimezone(_BERLIN):%A %H:%M} there, {due:%H:%M} in UTC.")
    return due


def _check(stage: Stage, rows: list[dict[str, Any]], before: datetime | None, after: datetime | None) -> None:
    stage.check(
        "six in the evening there, before the change (17:00 in UTC) and after it (16:00)",
        holds=(before, after) == (_FRIDAY.replace(hour=17), _MONDAY.replace(hour=16)),
    )
    stage.check(
        "of the change of both, the schedule's event comes first",
        holds=_steps(rows) == [f"scheduled_message.{step}" for step in _SCHEDULED_STEPS],
    )
    changed = [row["payload"]["changed_fields"] for row in rows if "changed_fields" in row["payload"]]
    stage.check("it names the fields that changed", holds=changed == [["recurrence_rule", "next_trigger_at"]])


_SCHEDULED_STEPS = ("created", "paused", "updated", "resumed")


def _steps(rows: list[dict[str, Any]]) -> list[str]:
    return [row["event_type"] for row in rows]


SCENES: tuple[Scene, ...] = (a_group_message_is_cancelled, a_message_keeps_its_local_hour)
