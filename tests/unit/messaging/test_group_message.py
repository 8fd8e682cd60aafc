"""The rules of messages to groups and of templates, with nothing but the domain (X4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest

from contexts.messaging.domain import (
    GroupMessage,
    IllegalTransition,
    InvalidGroupMessage,
    InvalidTemplate,
    Template,
)
from contexts.messaging.domain.group_message import CONTACT_GROUPS_MAX, RECIPIENTS_MAX
from contexts.messaging.domain.schedule import YEARS_AHEAD_MAX, YEARS_BACK_MAX
from contexts.messaging.domain.template import BODY_CHARACTERS_MAX
from contexts.messaging.events import GroupMessageCreated, GroupMessageStatus
from outbox_kernel import Conflict
from outbox_kernel.kernel.catalogue import event_type_of
from outbox_kernel.testing import FrozenClock

DRAFT, QUEUED, PROCESSING, SENT, FAILED, CANCELLED = GroupMessageStatus
ACCOUNT, CHANNEL, TEMPLATE, GROUP = uuid4(), uuid4(), uuid4(), uuid4()

WAYS = {
    (DRAFT, QUEUED),
    (DRAFT, CANCELLED),
    (QUEUED, PROCESSING),
    (QUEUED, CANCELLED),
    (PROCESSING, SENT),
    (PROCESSING, FAILED),
    (FAILED, QUEUED),
    (FAILED, CANCELLED),
}
ROADS = {
    DRAFT: [],
    QUEUED: [QUEUED],
    PROCESSING: [QUEUED, PROCESSING],
    SENT: [QUEUED, PROCESSING, SENT],
    FAILED: [QUEUED, PROCESSING, FAILED],
    CANCELLED: [CANCELLED],
}


def drafted(**fields: Any) -> GroupMessage:
    given = {"contact_group_ids": [GROUP], "total_recipients": 3, **fields}
    return GroupMessage.draft(ACCOUNT, CHANNEL, TEMPLATE, **given)


def brought_to(status: GroupMessageStatus) -> GroupMessage:
    message = drafted()
    for step in ROADS[status]:
        message.change_status(step)
    message.collect_events()
    return message


def test_a_draft_is_an_event_with_all_that_was_said() -> None:
    at = datetime(2030, 5, 17, 9, tzinfo=timezone(timedelta(hours=2)))
    message = drafted(scheduled_at=at)
    (created,) = message.recorded_events
    assert created == GroupMessageCreated(
        message.id,
        ACCOUNT,
        CHANNEL,
        TEMPLATE,
        DRAFT,
        (GROUP,),
        3,
        datetime(2030, 5, 17, 7, tzinfo=UTC),
        event_id=created.event_id,
        occurred_at=created.occurred_at,
    )
    assert (created.aggregate_type, created.aggregate_version) == ("group_message", 1)


@pytest.mark.parametrize(("before", "after"), sorted(WAYS, key=str))
def test_each_real_transition_is_an_event_of_its_name(
    before: GroupMessageStatus, after: GroupMessageStatus
) -> None:
    message = brought_to(before)
    message.change_status(after)
    (found,) = message.recorded_events
    assert event_type_of(type(found)).name == f"group_message.{after.value}"
    shown = {name: getattr(found, name) for name in ("id", "account_id", "status", "previous_status")}
    assert shown == {"id": message.id, "account_id": ACCOUNT, "status": after, "previous_status": before}
    assert message.status is after


@pytest.mark.parametrize("before", GroupMessageStatus)
@pytest.mark.parametrize("after", GroupMessageStatus)
def test_every_other_one_is_refused_or_no_change(
    before: GroupMessageStatus, after: GroupMessageStatus
) -> None:
    if (before, after) in WAYS:
        return
    message = brought_to(before)
    if before is after:
        message.change_status(after)
    else:
        with pytest.raises(IllegalTransition, match=f"is {before.value} cannot become {after.value}: ") as no:
            message.change_status(after)
        assert isinstance(no.value, Conflict)
    assert (message.status, message.recorded_events) == (before, ())


def test_a_refusal_names_the_ways_there_are() -> None:
    with pytest.raises(
        IllegalTransition, match="draft cannot become sent: it can become queued or cancelled"
    ):
        drafted().change_status(SENT)
    with pytest.raises(
        IllegalTransition, match="sent cannot become queued: this is its end, so make a new one"
    ):
        brought_to(SENT).change_status(QUEUED)


def many(number: int) -> list[UUID]:
    return [UUID(int=each) for each in range(number)]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"contact_group_ids": []}, "goes to no group: give at least one"),
        (
            {"contact_group_ids": many(CONTACT_GROUPS_MAX + 1)},
            "goes to 1,001 groups, and 1,000 are the limit",
        ),
        ({"contact_group_ids": [GROUP, GROUP]}, "named twice in contact_group_ids: name each once"),
        ({"total_recipients": -1}, "total_recipients is -1: give how many"),
        ({"total_recipients": RECIPIENTS_MAX + 1}, "from 0 to 10,000,000"),
        ({"scheduled_at": datetime(2030, 1, 1)}, "no offset from UTC: write it like"),  # noqa: DTZ001 - the point
        # Years that UTC does not have, and that PostgreSQL takes for no moment at all.
        (
            {"scheduled_at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2)))},
            "in the year 1: give one from",
        ),
        ({"scheduled_at": datetime(1, 1, 1, tzinfo=UTC)}, "in the year 1: give one from"),
        ({"scheduled_at": datetime.max.replace(tzinfo=UTC)}, "in the year 9999: give one from"),
    ],
)
def test_what_is_no_message_to_groups_is_refused_in_a_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidGroupMessage, match=sentence):
        drafted(**fields)


def test_the_year_is_one_that_a_schedule_may_have(frozen_clock: FrozenClock) -> None:
    """The same window as that of scheduled messages (X4)."""
    year = frozen_clock.now().year
    for near in (year - YEARS_BACK_MAX, year + YEARS_AHEAD_MAX):
        at = datetime(near, 7, 1, tzinfo=UTC)
        assert drafted(scheduled_at=at).scheduled_at == at
    for far in (year - YEARS_BACK_MAX - 1, year + YEARS_AHEAD_MAX + 1):
        with pytest.raises(InvalidGroupMessage, match=f"in the year {far}: give one from {year - 1} to"):
            drafted(scheduled_at=datetime(far, 7, 1, tzinfo=UTC))


def test_the_limits_are_within() -> None:
    message = drafted(contact_group_ids=many(CONTACT_GROUPS_MAX), total_recipients=RECIPIENTS_MAX)
    assert len(message.contact_group_ids) == CONTACT_GROUPS_MAX
    assert drafted(total_recipients=0).total_recipients == 0


def test_a_template_keeps_its_text_and_tells_nobody() -> None:
    template = Template.write(ACCOUNT, "Dear all,\n\n🎉")
    assert (template.account_id, template.body) == (ACCOUNT, "Dear all,\n\n🎉")
    assert template.recorded_events == ()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("", "the body is empty"),
        (" \n", "the body is empty"),
        ("x" * (BODY_CHARACTERS_MAX + 1), "4,097 characters, and 4,096 are the limit"),
        ("a\0b", "a NUL or a lone surrogate"),
        ("a\ud800b", "a NUL or a lone surrogate"),
    ],
)
def test_what_is_no_text_is_refused_in_a_sentence(body: str, sentence: str) -> None:
    with pytest.raises(InvalidTemplate, match=sentence):
        Template.write(ACCOUNT, body)
