"""What messages publish stays readable: payloads and bodies are held against those of the first day (X5)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from contexts.messaging import events as published
from contexts.messaging.domain import GroupMessage, ScheduledMessage
from contexts.messaging.events import GroupMessageStatus, ScheduledMessageStatus, SendType
from outbox_kernel import DomainEvent, deserialize_event, serialize_event
from outbox_kernel.kernel.catalogue import aggregate_type_of, event_type_of, event_types
from outbox_kernel.kernel.published import published_body

GOLDEN = Path(__file__).parent / "golden"


def an_id(number: int) -> UUID:
    return UUID(f"01890000-0000-7000-8000-{number:012x}")


MESSAGE, ACCOUNT, CHANNEL, TEMPLATE = map(an_id, range(0xA1, 0xA5))
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
AT = datetime(2026, 3, 2, 8, tzinfo=UTC)
HEADERS = {
    "user_id": "01890000-0000-7000-8000-0000000000b1",
    "request_id": "request-1",
    "correlation_id": "request-1",
    # Each of these events has an account of its own, which wins.
    "account_id": "the context's",
}

DRAFT, QUEUED, PROCESSING, SENT, FAILED, CANCELLED = GroupMessageStatus
PENDING, PAUSED, ENDED = ScheduledMessageStatus
HEAD: Any = {"event_id": an_id(1), "occurred_at": MOMENT}
OWN: Any = {"id": MESSAGE, "account_id": ACCOUNT, **HEAD}

EVENTS: list[DomainEvent] = [
    published.GroupMessageCreated(
        channel_id=CHANNEL,
        template_id=TEMPLATE,
        status=DRAFT,
        contact_group_ids=(an_id(0xC1), an_id(0xC2)),
        total_recipients=42,
        scheduled_at=AT,
        **OWN,
    ),
    published.GroupMessageQueued(status=QUEUED, previous_status=DRAFT, **OWN),
    published.GroupMessageProcessing(status=PROCESSING, previous_status=QUEUED, **OWN),
    published.GroupMessageSent(status=SENT, previous_status=PROCESSING, **OWN),
    published.GroupMessageFailed(status=FAILED, previous_status=PROCESSING, **OWN),
    published.GroupMessageCancelled(status=CANCELLED, previous_status=QUEUED, **OWN),
    published.ScheduledMessageCreated(
        channel_id=CHANNEL,
        template_id=TEMPLATE,
        send_type=SendType.GROUP,
        status=PENDING,
        scheduled_at=AT,
        timezone="Europe/Berlin",
        is_recurring=True,
        recurrence_rule="FREQ=WEEKLY;BYDAY=MO",
        next_trigger_at=AT,
        **OWN,
    ),
    published.ScheduledMessageUpdated(
        scheduled_at=AT,
        timezone="Europe/Berlin",
        is_recurring=False,
        recurrence_rule=None,
        next_trigger_at=AT,
        changed_fields=("is_recurring", "recurrence_rule"),
        **OWN,
    ),
    published.ScheduledMessagePaused(status=PAUSED, previous_status=PENDING, **OWN),
    published.ScheduledMessageResumed(status=PENDING, previous_status=PAUSED, next_trigger_at=AT, **OWN),
    published.ScheduledMessageCancelled(status=ENDED, previous_status=PAUSED, **OWN),
]

# What may be empty in them is.
BARE: list[DomainEvent] = [
    published.GroupMessageCreated(
        channel_id=CHANNEL,
        template_id=TEMPLATE,
        status=DRAFT,
        contact_group_ids=(an_id(0xC1),),
        total_recipients=0,
        scheduled_at=None,
        **OWN,
    ),
    published.ScheduledMessageCreated(
        channel_id=CHANNEL,
        template_id=TEMPLATE,
        send_type=SendType.GROUP,
        status=PENDING,
        scheduled_at=AT,
        timezone="UTC",
        is_recurring=False,
        recurrence_rule=None,
        next_trigger_at=AT,
        **OWN,
    ),
]

STATUS = "id account_id status previous_status"
FIELDS = {
    "group_message.created": "id account_id channel_id template_id status contact_group_ids total_recipients "
    "scheduled_at",
    "group_message.queued": STATUS,
    "group_message.processing": STATUS,
    "group_message.sent": STATUS,
    "group_message.failed": STATUS,
    "group_message.cancelled": STATUS,
    "scheduled_message.created": "id account_id channel_id template_id send_type status scheduled_at timezone "
    "is_recurring recurrence_rule next_trigger_at",
    "scheduled_message.updated": "id account_id scheduled_at timezone is_recurring recurrence_rule next_trigger_at "
    "changed_fields",
    "scheduled_message.paused": STATUS,
    "scheduled_message.resumed": f"{STATUS} next_trigger_at",
    "scheduled_message.cancelled": STATUS,
}


def name_of(event: DomainEvent) -> str:
    return event_type_of(type(event)).name


def file_of(event: DomainEvent) -> str:
    return name_of(event) + ("-bare" if any(event is each for each in BARE) else "")


every_event = pytest.mark.parametrize("event", [*EVENTS, *BARE], ids=file_of)


def golden(event: DomainEvent, kind: str) -> Any:
    return json.loads((GOLDEN / f"{file_of(event)}.{kind}.json").read_text())


def body_of(event: DomainEvent, payload: dict[str, Any]) -> dict[str, Any]:
    aggregate = GroupMessage if name_of(event).startswith("group") else ScheduledMessage
    return published_body(
        payload,
        HEADERS,
        event_type=name_of(event),
        aggregate_type=aggregate_type_of(aggregate),
        aggregate_id=MESSAGE,
        occurred_at=MOMENT,
    )


def test_each_event_of_the_context_is_here() -> None:
    kinds = [kind.name for kind in event_types() if kind.cls.__module__ == published.__name__]
    assert sorted(kinds) == sorted(FIELDS) == sorted(map(name_of, EVENTS))
    assert {path.name.rsplit(".", 2)[0] for path in GOLDEN.iterdir()} == set(map(file_of, [*EVENTS, *BARE]))


@every_event
def test_the_payload_has_the_fields_that_were_agreed_on(event: DomainEvent) -> None:
    assert list(json.loads(serialize_event(event))) == [
        "event_id",
        "occurred_at",
        *FIELDS[name_of(event)].split(),
    ]


@every_event
def test_the_payload_is_as_it_was(event: DomainEvent) -> None:
    assert json.loads(serialize_event(event)) == golden(event, "stored")


@every_event
def test_the_payload_of_old_restores_the_event(event: DomainEvent) -> None:
    assert deserialize_event(name_of(event), golden(event, "stored"), version=1) == event


@every_event
def test_the_published_body_is_as_it_was(event: DomainEvent) -> None:
    assert body_of(event, json.loads(serialize_event(event))) == golden(event, "published")
