"""The use cases of messages on PostgreSQL: each commits with its events (X4, X5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from lagom import Container
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

from contexts.messaging.domain import MessageNotFound, UnknownTemplate
from contexts.messaging.events import GroupMessageStatus, ScheduledMessageStatus, SendType
from contexts.messaging.persistence import SqlMessagingUnitOfWork, messaging_metadata
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
from outbox_kernel.infrastructure.outbox.migrator import downgrade, migrate
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel.testing import FrozenClock, using_clock
from tests.stumbling import stumbling

ACCOUNT, CHANNEL, GROUP = uuid4(), uuid4(), uuid4()
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NINE = datetime(2026, 3, 2, 8, tzinfo=UTC)
EVENTS = "SELECT aggregate_id, aggregate_version, event_type FROM outbox_events ORDER BY position"
# Whatever a use case could leave behind.
EVERYTHING = """
SELECT 'template', to_jsonb(message_templates) FROM message_templates
UNION ALL SELECT 'group', to_jsonb(group_messages) FROM group_messages
UNION ALL SELECT 'scheduled', to_jsonb(scheduled_messages) FROM scheduled_messages
UNION ALL SELECT 'event', to_jsonb(outbox_events) FROM outbox_events
"""


@pytest.fixture(autouse=True)
def clock() -> Any:
    with using_clock(FrozenClock(NOW)) as clock:
        yield clock


def group_command(**fields: Any) -> CreateGroupMessage:
    given = {
        "account_id": ACCOUNT,
        "channel_id": CHANNEL,
        "contact_group_ids": (GROUP, uuid4()),
        "total_recipients": 3,
        "body": "Dear all",
        "scheduled_at": NINE,
    }
    return CreateGroupMessage(**{**given, **fields})


def scheduled_command(**fields: Any) -> CreateScheduledMessage:
    given = {
        "account_id": ACCOUNT,
        "channel_id": CHANNEL,
        "send_type": SendType.INDIVIDUAL,
        "scheduled_at": NINE,
        "timezone": "Europe/Berlin",
        "recurrence_rule": "FREQ=DAILY",
        "body": "Good morning",
    }
    return CreateScheduledMessage(**{**given, **fields})


async def test_a_group_message_comes_back_as_it_was_drafted(container: Container, rows: Any) -> None:
    message = await container[CreateGroupMessageHandler].handle(group_command())
    for status in (GroupMessageStatus.QUEUED, GroupMessageStatus.CANCELLED):
        await container[ChangeGroupMessageStatusHandler].handle(
            ChangeGroupMessageStatus(account_id=ACCOUNT, message_id=message.id, status=status)
        )
    found = await container[FindGroupMessageHandler].handle(
        FindGroupMessage(account_id=ACCOUNT, message_id=message.id)
    )
    assert found is not message
    assert (found.template_id, found.contact_group_ids, found.scheduled_at, found.status) == (
        message.template_id,
        message.contact_group_ids,
        NINE,
        GroupMessageStatus.CANCELLED,
    )
    assert await rows("SELECT id, account_id, body, version FROM message_templates") == [
        (message.template_id, ACCOUNT, "Dear all", 0)
    ]
    assert await rows(EVENTS) == [
        (message.id, 1, "group_message.created"),
        (message.id, 2, "group_message.queued"),
        (message.id, 3, "group_message.cancelled"),
    ]


async def test_a_scheduled_message_comes_back_as_it_was_set(container: Container, rows: Any) -> None:
    message = await container[CreateScheduledMessageHandler].handle(scheduled_command())
    ids: Any = {"account_id": ACCOUNT, "message_id": message.id}
    pending, paused, cancelled = ScheduledMessageStatus
    handler = container[UpdateScheduledMessageHandler]
    await handler.handle(UpdateScheduledMessage(status=paused, **ids))
    later = NINE + timedelta(days=1)
    await handler.handle(UpdateScheduledMessage(scheduled_at=later, status=pending, **ids))
    found = await container[FindScheduledMessageHandler].handle(FindScheduledMessage(**ids))
    assert (found.send_type, found.status) == (SendType.INDIVIDUAL, pending)
    assert (found.scheduled_at, found.next_trigger_at, found.is_recurring) == (later, later, True)
    await handler.handle(UpdateScheduledMessage(status=cancelled, **ids))
    assert [event_type for _, _, event_type in await rows(EVENTS)] == [
        "scheduled_message.created",
        "scheduled_message.paused",
        "scheduled_message.updated",
        "scheduled_message.resumed",
        "scheduled_message.cancelled",
    ]
    changed = (
        "SELECT payload->'changed_fields' FROM outbox_events WHERE event_type = 'scheduled_message.updated'"
    )
    assert await rows(changed) == [(["scheduled_at", "next_trigger_at"],)]


async def test_an_update_of_what_is_so_already_writes_nothing(container: Container, rows: Any) -> None:
    message = await container[CreateScheduledMessageHandler].handle(scheduled_command())
    before = await rows(EVERYTHING)
    await container[UpdateScheduledMessageHandler].handle(
        UpdateScheduledMessage(
            account_id=ACCOUNT,
            message_id=message.id,
            scheduled_at=NINE,
            timezone="Europe/Berlin",
            recurrence_rule="FREQ=DAILY",
            status=ScheduledMessageStatus.PENDING,
        )
    )
    assert await rows(EVERYTHING) == before


async def test_what_is_somebody_elses_is_not_found(container: Container, rows: Any) -> None:
    message = await container[CreateGroupMessageHandler].handle(group_command())
    before = await rows(EVERYTHING)
    with pytest.raises(MessageNotFound):
        await container[FindGroupMessageHandler].handle(
            FindGroupMessage(account_id=uuid4(), message_id=message.id)
        )
    theirs = scheduled_command(account_id=uuid4(), body=None, template_id=message.template_id)
    with pytest.raises(UnknownTemplate):
        await container[CreateScheduledMessageHandler].handle(theirs)
    assert await rows(EVERYTHING) == before


class InStep(SqlMessagingUnitOfWork):
    """Commits for the first time only when all others are about to: nobody has seen the others' rows."""

    def __init__(self, container: Container, barrier: asyncio.Barrier) -> None:
        super().__init__(container[async_sessionmaker])
        self._barrier: asyncio.Barrier | None = barrier

    async def commit(self) -> None:
        barrier, self._barrier = self._barrier, None
        if barrier is not None:
            await barrier.wait()
        await super().commit()


async def test_two_who_change_one_message_at_once_come_one_after_the_other(
    container: Container, rows: Any
) -> None:
    message = await container[CreateScheduledMessageHandler].handle(scheduled_command())
    barrier = asyncio.Barrier(2)
    ids: Any = {"account_id": ACCOUNT, "message_id": message.id}
    commands = (
        UpdateScheduledMessage(timezone="UTC", **ids),
        UpdateScheduledMessage(status=ScheduledMessageStatus.PAUSED, **ids),
    )
    await asyncio.gather(
        *(UpdateScheduledMessageHandler(InStep(container, barrier)).handle(command) for command in commands)
    )
    assert [version for _, version, _ in await rows(EVENTS)] == [1, 2, 3]
    assert await rows("SELECT timezone, status, version FROM scheduled_messages") == [("UTC", "paused", 3)]


# --- failures between any two steps ---------------------------------------------------------------------------------

Case = tuple[Any, Callable[[UUID, UUID, UUID], Any], list[str]]

CASES: dict[str, Case] = {
    "a group message with its template": (
        CreateGroupMessageHandler,
        lambda *_: group_command(),
        ["templates.add", "record GroupMessageCreated", "group_messages.add", "commit"],
    ),
    "a group message of a template": (
        CreateGroupMessageHandler,
        lambda template, *_: group_command(body=None, template_id=template),
        ["templates.get", "record GroupMessageCreated", "group_messages.add", "commit"],
    ),
    "a scheduled message with its template": (
        CreateScheduledMessageHandler,
        lambda *_: scheduled_command(),
        ["templates.add", "record ScheduledMessageCreated", "scheduled_messages.add", "commit"],
    ),
    "a status": (
        ChangeGroupMessageStatusHandler,
        lambda _, group, __: ChangeGroupMessageStatus(
            account_id=ACCOUNT, message_id=group, status=GroupMessageStatus.QUEUED
        ),
        ["group_messages.get", "record GroupMessageQueued", "commit"],
    ),
    "a schedule and a status": (
        UpdateScheduledMessageHandler,
        lambda _, __, scheduled: UpdateScheduledMessage(
            account_id=ACCOUNT,
            message_id=scheduled,
            timezone="UTC",
            status=ScheduledMessageStatus.PAUSED,
        ),
        [
            "scheduled_messages.get",
            "record ScheduledMessageUpdated",
            "record ScheduledMessagePaused",
            "commit",
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_failure_between_two_steps_leaves_neither_state_nor_events(
    container: Container, rows: Any, case: str
) -> None:
    handler, command_for, steps = CASES[case]
    group = await container[CreateGroupMessageHandler].handle(group_command())
    scheduled = await container[CreateScheduledMessageHandler].handle(scheduled_command())
    command = command_for(group.template_id, group.id, scheduled.id)
    before, failed = await rows(EVERYTHING), []
    attempts = stumbling(container[SqlMessagingUnitOfWork], lambda uow: handler(uow).handle(command))
    async for step in attempts:
        failed.append(step)
        assert await rows(EVERYTHING) == before
    assert failed == steps
    assert len(await rows(EVENTS)) > 2


# --- the tables -------------------------------------------------------------------------------------------------------


async def test_the_declared_tables_are_the_replayed_migrations(container: Container, rows: Any) -> None:
    def differences(connection: Connection) -> list[Any]:
        options = {
            "compare_server_default": True,
            "include_name": lambda name, kind, _: kind != "table" or name in messaging_metadata.tables,
        }
        return list(
            compare_metadata(MigrationContext.configure(connection, opts=options), messaging_metadata)
        )

    async with container[AsyncEngine].connect() as connection:
        assert await connection.run_sync(differences) == []
    found = await rows(
        "SELECT conname, condeferred FROM pg_constraint WHERE contype IN ('p', 'u', 'f') "
        "AND conrelid IN ('message_templates'::regclass, 'group_messages'::regclass, "
        "'scheduled_messages'::regclass) ORDER BY 1"
    )
    assert found == [
        ("group_messages_pkey", False),
        ("group_messages_template_id_fkey", True),
        ("message_templates_pkey", False),
        ("scheduled_messages_pkey", False),
        ("scheduled_messages_template_id_fkey", True),
    ]


async def test_the_migration_goes_down_and_up_again_and_leaves_the_outbox(
    container: Container, rows: Any
) -> None:
    engine, settings = container[AsyncEngine], container[Settings]
    steps = await downgrade(engine, "messaging@base", settings)
    assert [step.revision for step in steps] == ["messaging_0001"]
    tables = (
        "SELECT to_regclass('message_templates'), to_regclass('group_messages'), "
        "to_regclass('scheduled_messages'), to_regclass('outbox_events') IS NULL"
    )
    assert await rows(tables) == [(None, None, None, False)]
    assert [step.revision for step in await migrate(engine, settings)] == ["messaging_0001"]
