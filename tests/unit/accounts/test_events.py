"""What accounts publish stays readable: the payloads of today are held against those of the first day."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from contexts.accounts.events import AccountCreated, AccountEmailChanged, AccountRole
from outbox_kernel import DomainEvent, deserialize_event, serialize_event
from outbox_kernel.kernel import masked_payload
from outbox_kernel.kernel.published import published_body

GOLDEN = Path(__file__).parent / "golden"

ACCOUNT = UUID("01890000-0000-7000-8000-0000000000aa")
EVENT = UUID("01890000-0000-7000-8000-000000000001")
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

EVENTS = [
    AccountCreated(ACCOUNT, "ada@example.org", AccountRole.ADMIN, event_id=EVENT, occurred_at=MOMENT),
    AccountEmailChanged(ACCOUNT, "ada@home.example", event_id=EVENT, occurred_at=MOMENT),
]
every_event = pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)


def golden(event: DomainEvent) -> str:
    return (GOLDEN / f"{type(event).__name__}.json").read_text()


@every_event
def test_the_payload_is_as_it_was(event: DomainEvent) -> None:
    assert json.loads(serialize_event(event)) == json.loads(golden(event))


@every_event
def test_the_payload_of_old_restores_the_event(event: DomainEvent) -> None:
    assert deserialize_event(type(event).__name__, golden(event), version=1) == event


@every_event
def test_the_body_for_others_is_as_it_was(event: DomainEvent) -> None:
    """X5: the payload, the envelope's keys and the context's, should these events be published one day."""
    body = published_body(
        json.loads(serialize_event(event)),
        {"user_id": str(ACCOUNT), "request_id": "request-1", "correlation_id": "request-1"},
        event_type=type(event).__name__,
        aggregate_type="account",
        aggregate_id=ACCOUNT,
        occurred_at=MOMENT,
    )
    assert body == json.loads((GOLDEN / f"{type(event).__name__}.published.json").read_text())


@every_event
def test_the_address_is_masked_for_people(event: DomainEvent) -> None:
    shown = masked_payload(type(event).__name__, json.loads(golden(event)))
    assert shown["email"] == "***"
    assert shown["account_id"] == str(ACCOUNT)
