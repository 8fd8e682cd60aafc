"""The rules of scheduled messages, with nothing but the domain (X4)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from contexts.messaging.domain import IllegalTransition, InvalidSchedule, NothingAhead, ScheduledMessage
from contexts.messaging.events import (
    ScheduledMessageCancelled,
    ScheduledMessageCreated,
    ScheduledMessagePaused,
    ScheduledMessageResumed,
    ScheduledMessageStatus,
    ScheduledMessageUpdated,
    SendType,
)
from outbox_kernel import Conflict
from outbox_kernel.testing import ANY, FrozenClock, using_clock

PENDING, PAUSED, CANCELLED = ScheduledMessageStatus
ACCOUNT, CHANNEL, TEMPLATE = uuid4(), uuid4(), uuid4()
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NINE = datetime(2026, 3, 2, 8, tzinfo=UTC)


@pytest.fixture(autouse=True)
def clock() -> Iterator[FrozenClock]:
    with using_clock(FrozenClock(NOW)) as clock:
        yield clock


def created(**fields: Any) -> ScheduledMessage:
    given = {"scheduled_at": NINE, "timezone": "Europe/Berlin", **fields}
    return ScheduledMessage.create(ACCOUNT, CHANNEL, TEMPLATE, SendType.GROUP, **given)


def pending(**fields: Any) -> ScheduledMessage:
    message = created(**fields)
    message.collect_events()
    return message


def paused(**fields: Any) -> ScheduledMessage:
    message = created(**fields)
    message.change_status(PAUSED)
    message.collect_events()
    return message


def told(event_class: Any, message: ScheduledMessage, **fields: Any) -> Any:
    return event_class(id=message.id, account_id=ACCOUNT, event_id=ANY, occurred_at=ANY, **fields)


def schedule_of(message: ScheduledMessage) -> dict[str, Any]:
    names = ("scheduled_at", "timezone", "is_recurring", "recurrence_rule", "next_trigger_at")
    return {name: getattr(message, name) for name in names}


@pytest.mark.parametrize("rule", [None, "FREQ=WEEKLY;BYDAY=MO"])
def test_a_new_message_is_an_event_with_all_that_was_said(rule: str | None) -> None:
    message = created(recurrence_rule=rule)
    (event,) = message.recorded_events
    assert event == told(
        ScheduledMessageCreated,
        message,
        channel_id=CHANNEL,
        template_id=TEMPLATE,
        send_type=SendType.GROUP,
        status=PENDING,
        scheduled_at=NINE,
        timezone="Europe/Berlin",
        is_recurring=rule is not None,
        recurrence_rule=rule,
        next_trigger_at=NINE,
    )
    assert event.aggregate_type == "scheduled_message"


@pytest.mark.parametrize(
    "fields",
    [
        {"scheduled_at": NOW},
        {"scheduled_at": NOW - timedelta(days=2)},
        {"scheduled_at": NOW - timedelta(days=9), "recurrence_rule": "FREQ=DAILY;COUNT=9"},
        {"scheduled_at": NINE, "recurrence_rule": "FREQ=DAILY;UNTIL=20260301T120000Z"},
    ],
)
def test_a_schedule_without_a_future_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(NothingAhead, match="no moment left in the future: give a later scheduled_at"):
        created(**fields)


def test_a_recurrence_may_have_begun_already() -> None:
    message = created(scheduled_at=NINE - timedelta(days=7), recurrence_rule="FREQ=DAILY")
    assert message.next_trigger_at == NINE


# --- its schedule -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({"scheduled_at": NINE + timedelta(hours=1)}, ("scheduled_at", "next_trigger_at")),
        ({"timezone": "Africa/Lagos"}, ("timezone",)),
        ({"recurrence_rule": None}, ("is_recurring", "recurrence_rule")),
        ({"recurrence_rule": "FREQ=DAILY"}, ("recurrence_rule",)),
        ({"recurrence_rule": "FREQ=WEEKLY;BYDAY=TU"}, ("recurrence_rule", "next_trigger_at")),
        (
            {
                "scheduled_at": datetime(2026, 4, 1, 9),  # noqa: DTZ001 - local time
                "timezone": "America/New_York",
                "recurrence_rule": None,
            },
            ("scheduled_at", "timezone", "is_recurring", "recurrence_rule", "next_trigger_at"),
        ),
    ],
)
def test_an_update_says_exactly_what_is_another_than_before(
    changes: dict[str, Any], changed: tuple[str, ...]
) -> None:
    message = pending(recurrence_rule="FREQ=WEEKLY")
    before = schedule_of(message)
    message.reschedule(**changes)
    (event,) = message.recorded_events
    after = schedule_of(message)
    assert event == told(ScheduledMessageUpdated, message, **after, changed_fields=changed)
    assert tuple(name for name in after if after[name] != before[name]) == changed


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scheduled_at": NINE},
        {"scheduled_at": datetime(2026, 3, 2, 9, 0, 0, 500)},  # noqa: DTZ001 - local time
        {"timezone": "Europe/Berlin"},
        {"recurrence_rule": "RRULE:freq=weekly"},
        {"scheduled_at": NINE, "timezone": "Europe/Berlin", "recurrence_rule": "FREQ=WEEKLY"},
    ],
)
def test_an_update_that_changes_nothing_records_nothing(changes: dict[str, Any]) -> None:
    message = pending(recurrence_rule="FREQ=WEEKLY")
    message.reschedule(**changes)
    assert message.recorded_events == ()


def test_time_that_has_passed_is_no_change(clock: FrozenClock) -> None:
    message = pending(recurrence_rule="FREQ=WEEKLY")
    clock.advance(timedelta(days=30))
    message.reschedule(recurrence_rule="FREQ=WEEKLY")
    assert message.recorded_events == ()


def test_another_zone_alone_leaves_the_moment_and_moves_what_follows(clock: FrozenClock) -> None:
    message = pending(recurrence_rule="FREQ=DAILY")
    message.reschedule(timezone="America/New_York")
    assert (message.scheduled_at, message.next_trigger_at) == (NINE, NINE)
    clock.set(datetime(2026, 3, 20, tzinfo=UTC))
    message.change_status(PAUSED)
    message.change_status(PENDING)
    # New York's clocks have gone forward by then, and Berlin's have not: 3 o'clock is now at 7 in UTC.
    assert message.next_trigger_at == datetime(2026, 3, 20, 7, tzinfo=UTC)


def test_a_message_of_years_ago_takes_another_zone(clock: FrozenClock) -> None:
    message = pending(recurrence_rule="FREQ=DAILY")
    clock.set(datetime(2029, 7, 1, tzinfo=UTC))
    message.reschedule(timezone="UTC")
    assert message.next_trigger_at == datetime(2029, 7, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    "changes",
    [
        {"scheduled_at": NOW},
        {"timezone": "Nowhere/Else"},
        {"recurrence_rule": "FREQ=SECONDLY"},
        {"scheduled_at": datetime(2040, 1, 1, tzinfo=UTC)},
    ],
)
def test_a_refused_update_leaves_the_message_as_it_was(changes: dict[str, Any]) -> None:
    message = pending()
    before = schedule_of(message)
    with pytest.raises(InvalidSchedule):
        message.reschedule(**changes)
    assert (schedule_of(message), message.recorded_events) == (before, ())


# --- its status -------------------------------------------------------------------------------------------------


def test_pausing_is_an_event() -> None:
    message = pending()
    message.change_status(PAUSED)
    assert message.recorded_events == (
        told(ScheduledMessagePaused, message, status=PAUSED, previous_status=PENDING),
    )
    assert message.next_trigger_at == NINE


def test_resuming_is_an_event_with_the_next_moment_from_now_on(clock: FrozenClock) -> None:
    message = paused(recurrence_rule="FREQ=DAILY")
    clock.advance(timedelta(days=30))
    message.change_status(PENDING)
    # Summer time has begun: 9 o'clock in Berlin is now at 7 in UTC.
    expected = datetime(2026, 4, 1, 7, tzinfo=UTC)
    assert message.recorded_events == (
        told(
            ScheduledMessageResumed,
            message,
            status=PENDING,
            previous_status=PAUSED,
            next_trigger_at=expected,
        ),
    )
    assert (message.status, message.next_trigger_at) == (PENDING, expected)


@pytest.mark.parametrize("rule", [None, "FREQ=DAILY;COUNT=3", "FREQ=DAILY;UNTIL=20260310T000000Z"])
def test_what_is_over_cannot_be_resumed(rule: str | None, clock: FrozenClock) -> None:
    message = paused(recurrence_rule=rule)
    clock.advance(timedelta(days=30))
    with pytest.raises(NothingAhead):
        message.change_status(PENDING)
    assert (message.status, message.recorded_events) == (PAUSED, ())


@pytest.mark.parametrize("made", [pending, paused])
def test_cancelling_is_an_event_and_takes_the_next_moment_away(made: Any) -> None:
    message = made()
    before = message.status
    message.change_status(CANCELLED)
    assert message.recorded_events == (
        told(ScheduledMessageCancelled, message, status=CANCELLED, previous_status=before),
    )
    assert message.next_trigger_at is None


@pytest.mark.parametrize("status", ScheduledMessageStatus)
def test_the_status_it_has_already_is_no_change(status: ScheduledMessageStatus) -> None:
    message = created()
    message.change_status(status)
    message.collect_events()
    message.change_status(status)
    assert message.recorded_events == ()


def test_a_cancelled_message_is_at_its_end() -> None:
    message = pending()
    message.change_status(CANCELLED)
    message.collect_events()
    for status in (PENDING, PAUSED):
        with pytest.raises(
            IllegalTransition, match=f"cancelled cannot become {status.value}: this is its end"
        ) as no:
            message.change_status(status)
        assert isinstance(no.value, Conflict)
    with pytest.raises(IllegalTransition, match="cancelled cannot be scheduled anew: this is its end"):
        message.reschedule(timezone="UTC")
    message.reschedule(timezone="Europe/Berlin")
    assert message.recorded_events == ()
