"""The use cases of messages, without a database (X4)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from contexts.messaging.domain import (
    GroupMessage,
    IllegalTransition,
    InvalidTemplate,
    MessageNotFound,
    ScheduledMessage,
    Template,
    UnknownTemplate,
)
from contexts.messaging.events import (
    GroupMessageCancelled,
    GroupMessageCreated,
    GroupMessageQueued,
    GroupMessageStatus,
    ScheduledMessageCancelled,
    ScheduledMessageCreated,
    ScheduledMessagePaused,
    ScheduledMessageResumed,
    ScheduledMessageStatus,
    ScheduledMessageUpdated,
    SendType,
)
from contexts.messaging.use_cases import (
    ChangeGroupMessageStatus,
    ChangeGroupMessageStatusHandler,
    CreateGroupMessage,
    CreateGroupMessageHandler,
    CreateScheduledMessage,
    CreateScheduledMessageHandler,
    FindGroupMessage,
    FindGroupMessageHandler,
    FindScheduledMessage,
    FindScheduledMessageHandler,
    UpdateScheduledMessage,
    UpdateScheduledMessageHandler,
)
from outbox_kernel import NotFound
from outbox_kernel.testing import ANY, FrozenClock, assert_recorded, using_clock
from tests.unit.messaging.in_memory import InMemoryMessagingUnitOfWork

ACCOUNT, SOMEBODY_ELSE, CHANNEL, GROUP = uuid4(), uuid4(), uuid4(), uuid4()
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NINE = datetime(2026, 3, 2, 8, tzinfo=UTC)


@pytest.fixture(autouse=True)
def clock() -> Iterator[FrozenClock]:
    with using_clock(FrozenClock(NOW)) as clock:
        yield clock


@pytest.fixture
def uow() -> InMemoryMessagingUnitOfWork:
    return InMemoryMessagingUnitOfWork()


def group_command(**fields: Any) -> CreateGroupMessage:
    given = {
        "account_id": ACCOUNT,
        "channel_id": CHANNEL,
        "contact_group_ids": (GROUP,),
        "total_recipients": 3,
    }
    return CreateGroupMessage(**{**given, **fields})


def scheduled_command(**fields: Any) -> CreateScheduledMessage:
    given = {
        "account_id": ACCOUNT,
        "channel_id": CHANNEL,
        "send_type": SendType.GROUP,
        "scheduled_at": NINE,
        "timezone": "Europe/Berlin",
    }
    return CreateScheduledMessage(**{**given, **fields})


def drafted(uow: InMemoryMessagingUnitOfWork) -> UUID:
    message = GroupMessage.draft(ACCOUNT, CHANNEL, uuid4(), contact_group_ids=[GROUP], total_recipients=3)
    uow.store.put(message)
    return message.id


def scheduled(uow: InMemoryMessagingUnitOfWork) -> UUID:
    message = ScheduledMessage.create(
        ACCOUNT, CHANNEL, uuid4(), SendType.GROUP, scheduled_at=NINE, timezone="Europe/Berlin"
    )
    uow.store.put(message)
    return message.id


async def templates_in(uow: InMemoryMessagingUnitOfWork) -> list[Template]:
    async with uow:
        return list(await uow.templates.list())


# --- templates ----------------------------------------------------------------------------------------------


async def test_a_group_message_without_a_template_makes_one(uow: InMemoryMessagingUnitOfWork) -> None:
    message = await CreateGroupMessageHandler(uow).handle(group_command(body="Dear all"))
    (template,) = await templates_in(uow)
    assert (template.id, template.account_id, template.body) == (message.template_id, ACCOUNT, "Dear all")
    # Of the template nobody is told.
    assert_recorded(
        uow,
        GroupMessageCreated(
            message.id, ACCOUNT, CHANNEL, template.id, GroupMessageStatus.DRAFT, (GROUP,), 3, None
        ),
    )


async def test_a_scheduled_message_without_a_template_makes_one(uow: InMemoryMessagingUnitOfWork) -> None:
    message = await CreateScheduledMessageHandler(uow).handle(scheduled_command(body="Good morning"))
    (template,) = await templates_in(uow)
    assert (template.id, template.body) == (message.template_id, "Good morning")
    assert_recorded(
        uow,
        ScheduledMessageCreated(
            message.id,
            ACCOUNT,
            CHANNEL,
            template.id,
            SendType.GROUP,
            ScheduledMessageStatus.PENDING,
            NINE,
            "Europe/Berlin",
            is_recurring=False,
            recurrence_rule=None,
            next_trigger_at=NINE,
        ),
    )


async def test_a_template_serves_many_messages(uow: InMemoryMessagingUnitOfWork) -> None:
    template = Template.write(ACCOUNT, "Dear all")
    uow.store.put(template)
    for _ in range(2):
        message = await CreateGroupMessageHandler(uow).handle(group_command(template_id=template.id))
        assert message.template_id == template.id
    assert [each.id for each in await templates_in(uow)] == [template.id]


@pytest.mark.parametrize("given", [{}, {"template_id": uuid4(), "body": "Dear all"}])
async def test_a_message_has_one_text(uow: InMemoryMessagingUnitOfWork, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidTemplate, match="give either the template_id of one, or a new body"):
        await CreateGroupMessageHandler(uow).handle(group_command(**given))
    assert_recorded(uow)


@pytest.mark.parametrize("owner", [None, SOMEBODY_ELSE])
async def test_the_template_of_somebody_else_is_as_unknown_as_none(
    uow: InMemoryMessagingUnitOfWork, owner: UUID | None
) -> None:
    template = Template.write(owner or ACCOUNT, "Dear all")
    if owner is not None:
        uow.store.put(template)
    with pytest.raises(
        UnknownTemplate, match=f"has no template {template.id}: leave template_id out"
    ) as refusal:
        await CreateScheduledMessageHandler(uow).handle(scheduled_command(template_id=template.id))
    # It is a rule that is broken, and not the page that is missing.
    assert not isinstance(refusal.value, NotFound)
    assert_recorded(uow)


# --- group messages ---------------------------------------------------------------------------------------------


async def test_a_group_message_is_queued_and_cancelled(uow: InMemoryMessagingUnitOfWork) -> None:
    message_id = drafted(uow)
    handler = ChangeGroupMessageStatusHandler(uow)
    for status in (GroupMessageStatus.QUEUED, GroupMessageStatus.QUEUED, GroupMessageStatus.CANCELLED):
        message = await handler.handle(
            ChangeGroupMessageStatus(account_id=ACCOUNT, message_id=message_id, status=status)
        )
        assert message.status is status
    draft, queued, cancelled = (
        GroupMessageStatus.DRAFT,
        GroupMessageStatus.QUEUED,
        GroupMessageStatus.CANCELLED,
    )
    assert_recorded(
        uow,
        GroupMessageQueued(message_id, ACCOUNT, queued, draft),
        GroupMessageCancelled(message_id, ACCOUNT, cancelled, queued),
    )


async def test_a_refused_transition_leaves_nothing(uow: InMemoryMessagingUnitOfWork) -> None:
    command = ChangeGroupMessageStatus(
        account_id=ACCOUNT, message_id=drafted(uow), status=GroupMessageStatus.SENT
    )
    with pytest.raises(IllegalTransition):
        await ChangeGroupMessageStatusHandler(uow).handle(command)
    assert_recorded(uow)


# --- scheduled messages -----------------------------------------------------------------------------------------


async def test_schedule_and_status_in_one_update_are_told_in_this_order(
    uow: InMemoryMessagingUnitOfWork,
) -> None:
    message_id = scheduled(uow)
    handler = UpdateScheduledMessageHandler(uow)
    own: Any = {"id": message_id, "account_id": ACCOUNT}
    pending, paused, cancelled = ScheduledMessageStatus
    plan: Any = {"timezone": "Europe/Berlin", "is_recurring": False, "recurrence_rule": None}
    for hours, status in ((1, paused), (2, pending), (3, cancelled)):
        await handler.handle(
            UpdateScheduledMessage(
                account_id=ACCOUNT,
                message_id=message_id,
                scheduled_at=NINE + timedelta(hours=hours),
                status=status,
            )
        )
    at = [NINE + timedelta(hours=hours) for hours in range(4)]
    changed = ("scheduled_at", "next_trigger_at")
    assert_recorded(
        uow,
        ScheduledMessageUpdated(
            scheduled_at=at[1], next_trigger_at=at[1], changed_fields=changed, **plan, **own
        ),
        ScheduledMessagePaused(status=paused, previous_status=pending, **own),
        ScheduledMessageUpdated(
            scheduled_at=at[2], next_trigger_at=at[2], changed_fields=changed, **plan, **own
        ),
        ScheduledMessageResumed(status=pending, previous_status=paused, next_trigger_at=at[2], **own),
        ScheduledMessageUpdated(
            scheduled_at=at[3], next_trigger_at=at[3], changed_fields=changed, **plan, **own
        ),
        ScheduledMessageCancelled(status=cancelled, previous_status=pending, **own),
    )


async def test_an_update_that_breaks_a_rule_in_one_part_changes_none(
    uow: InMemoryMessagingUnitOfWork, clock: FrozenClock
) -> None:
    message_id = scheduled(uow)
    handler = UpdateScheduledMessageHandler(uow)
    cancel = UpdateScheduledMessage(
        account_id=ACCOUNT, message_id=message_id, status=ScheduledMessageStatus.CANCELLED
    )
    await handler.handle(cancel)
    again = UpdateScheduledMessage(
        account_id=ACCOUNT,
        message_id=message_id,
        timezone="UTC",
        status=ScheduledMessageStatus.PENDING,
    )
    with pytest.raises(IllegalTransition):
        await handler.handle(again)
    found = await FindScheduledMessageHandler(uow).handle(
        FindScheduledMessage(account_id=ACCOUNT, message_id=message_id)
    )
    assert (found.timezone, found.status) == ("Europe/Berlin", ScheduledMessageStatus.CANCELLED)
    assert_recorded(uow, ScheduledMessageCancelled(ANY, ACCOUNT, ANY, ANY))


async def test_an_update_of_nothing_is_no_event(uow: InMemoryMessagingUnitOfWork) -> None:
    command = UpdateScheduledMessage(account_id=ACCOUNT, message_id=scheduled(uow))
    await UpdateScheduledMessageHandler(uow).handle(command)
    assert_recorded(uow)


# --- whose they are ---------------------------------------------------------------------------------------------


async def test_a_message_is_found_by_its_account(uow: InMemoryMessagingUnitOfWork) -> None:
    group_id, scheduled_id = drafted(uow), scheduled(uow)
    group = await FindGroupMessageHandler(uow).handle(
        FindGroupMessage(account_id=ACCOUNT, message_id=group_id)
    )
    later = await FindScheduledMessageHandler(uow).handle(
        FindScheduledMessage(account_id=ACCOUNT, message_id=scheduled_id)
    )
    assert (group.id, group.total_recipients) == (group_id, 3)
    assert (later.id, later.next_trigger_at) == (scheduled_id, NINE)


@pytest.mark.parametrize("account", [ACCOUNT, SOMEBODY_ELSE])
async def test_a_message_of_somebody_else_is_not_found(
    uow: InMemoryMessagingUnitOfWork, account: UUID
) -> None:
    # Of one's own account it is the id that is wrong.
    group, later = (uuid4(), uuid4()) if account == ACCOUNT else (drafted(uow), scheduled(uow))
    of_group: Any = {"account_id": account, "message_id": group}
    of_later: Any = {"account_id": account, "message_id": later}
    queued, paused = GroupMessageStatus.QUEUED, ScheduledMessageStatus.PAUSED
    attempts = [
        FindGroupMessageHandler(uow).handle(FindGroupMessage(**of_group)),
        ChangeGroupMessageStatusHandler(uow).handle(ChangeGroupMessageStatus(status=queued, **of_group)),
        FindScheduledMessageHandler(uow).handle(FindScheduledMessage(**of_later)),
        UpdateScheduledMessageHandler(uow).handle(UpdateScheduledMessage(status=paused, **of_later)),
    ]
    for attempt in attempts:
        with pytest.raises(MessageNotFound, match="this account has no message") as refusal:
            await attempt
        assert isinstance(refusal.value, NotFound)
    assert_recorded(uow)
