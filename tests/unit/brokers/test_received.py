"""A message becomes the row that it was, or a reason (T1, T3, X5)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import attrs
import pytest

from outbox_kernel.infrastructure.brokers.messages import message_of
from outbox_kernel.infrastructure.brokers.received import Received, Unstorable, read
from outbox_kernel.kernel import DomainEvent, event
from outbox_kernel.kernel.catalogue import event_type_of, isolated_definitions
from outbox_kernel.kernel.context import Header
from outbox_kernel.kernel.identity import uuid_of

EVENT = "01890000-0000-7000-8000-000000000001"
EVENT_ID = UUID(EVENT)
ORDER = UUID("01890000-0000-7000-8000-0000000000aa")
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
TOLD = MOMENT.isoformat()


@attrs.frozen
class Row:
    """A row as it is published."""

    payload: str
    headers: dict[str, Header] = attrs.Factory(dict)
    event_id: UUID = EVENT_ID
    event_type: str = "order.placed"
    event_version: int = 3
    aggregate_type: str | None = "order"
    aggregate_id: UUID | None = ORDER
    aggregate_version: int | None = 7
    occurred_at: datetime = MOMENT
    created_at: datetime = MOMENT
    aggregate_key: str | None = None


SNAKE = {
    "event_id": EVENT,
    "occurred_at": TOLD,
    "user_id": "the buyer",
    "lines": [{"cents": 12}],
    "note": "✓",
}
CAMEL = {"eventId": EVENT, "occurredOn": TOLD, "eventVersion": 3, "userId": {"value": "the buyer"}}
CONTEXT: dict[str, Header] = {
    "user_id": "the clerk",
    "request_id": "r-1",
    "correlation_id": "c-1",
    "retried": True,
    "nothing": None,
    "x-tenant": "acme",
}


def there_and_back(row: Row) -> Received:
    message = message_of(row)
    return read(message.message_id, message.headers, message.body)


@pytest.mark.parametrize("payload", [SNAKE, CAMEL], ids=["snake", "camel"])
@pytest.mark.parametrize("context", [{}, CONTEXT], ids=["alone", "in a context"])
def test_what_is_read_is_what_was_published(payload: dict[str, Any], context: dict[str, Header]) -> None:
    row = Row(json.dumps(payload), context)
    read_again = there_and_back(row)
    assert json.loads(read_again.payload) == payload
    for name in ("event_id", "event_type", "event_version", "aggregate_type", "aggregate_id", "occurred_at"):
        assert getattr(read_again, name) == getattr(row, name)
    assert read_again.aggregate_version == 7


def test_the_context_comes_back_where_no_field_of_the_event_hides_it() -> None:
    in_camel = there_and_back(Row(json.dumps(CAMEL), CONTEXT))
    in_snake = there_and_back(Row(json.dumps(SNAKE), CONTEXT))
    assert json.loads(in_camel.headers) == CONTEXT
    assert json.loads(in_snake.headers) == {key: CONTEXT[key] for key in CONTEXT if key != "user_id"}


@pytest.mark.parametrize("header", ["the clerk", "the buyer"])
def test_a_header_that_is_named_like_a_field_of_the_event_takes_nothing_from_it(header: str) -> None:
    """A stranger's; ours are not sent beside such a field."""
    with isolated_definitions():

        @event("order.placed")
        class OrderPlaced(DomainEvent):
            user_id: str

        body = {**SNAKE, "event_type": event_type_of(OrderPlaced).name}
        found = read(None, {"user_id": header, "note": "another"}, json.dumps(body).encode())
        assert json.loads(found.payload) == SNAKE


def test_an_event_of_no_aggregate_is_of_none_again() -> None:
    row = Row(json.dumps(SNAKE), aggregate_type=None, aggregate_id=None, aggregate_version=None)
    read_again = there_and_back(row)
    assert (read_again.aggregate_type, read_again.aggregate_id, read_again.aggregate_version) == (None,) * 3


def test_a_key_that_is_no_uuid_comes_back_as_it_was_written() -> None:
    """C10, T1: beside the UUID that is derived from it."""
    uuid = uuid_of(42)
    read_again = there_and_back(Row(json.dumps(SNAKE), CONTEXT, aggregate_id=uuid, aggregate_key="42"))
    assert (read_again.aggregate_id, read_again.aggregate_key) == (uuid, "42")
    assert "aggregate_key" not in json.loads(read_again.headers)


def test_a_stranger_may_send_the_key_alone() -> None:
    """C10: anybody can derive the UUID."""
    headers = {"aggregate_type": "order", "aggregate_key": "42"}
    found = read(None, headers, json.dumps({**SNAKE, "event_type": "order.placed"}).encode())
    assert (found.aggregate_id, found.aggregate_key) == (uuid_of(42), "42")


@pytest.mark.parametrize("key", [42, "", "x" * 501, "nul \0"])
def test_a_key_that_none_can_be_is_refused(key: object) -> None:
    headers = {"aggregate_type": "order", "aggregate_key": key}
    with pytest.raises(Unstorable, match="its aggregate_key cannot be"):
        read(None, headers, json.dumps({**SNAKE, "event_type": "order.placed"}).encode())


def test_a_stranger_may_leave_the_headers_out() -> None:
    body = {**SNAKE, "event_type": "order.placed", "aggregate_type": "order", "aggregate_id": str(ORDER)}
    found = read(None, {}, json.dumps(body).encode())
    assert found == Received(
        UUID(EVENT), "order.placed", 1, "order", ORDER, None, found.payload, "{}", MOMENT, None, '["*"]'
    )
    assert json.loads(found.payload) == SNAKE


def test_what_a_broker_writes_on_the_way_is_no_context() -> None:
    headers = {
        "event_type": "order.placed",
        "x-death": [{"count": 1}],
        "x-first-death-queue": "q",
        "x-delivery-count": 2,
        "x-outbox-reason": "r",
        "table": {"a": 1},
    }
    assert read(None, headers, json.dumps(SNAKE).encode()).headers == "{}"


def test_a_backslash_before_u0000_is_no_nul() -> None:
    body = {**SNAKE, "note": "a path: C:\\u0000"}
    assert json.loads(read(None, NOTED, json.dumps(body).encode()).payload) == body


NOTED = {"event_type": "bank.noted"}


@pytest.mark.parametrize(
    ("change", "headers", "reason"),
    [
        ({"event_id": "7"}, NOTED, "event id cannot be '7'"),
        ({"event_id": 7}, NOTED, "event id cannot be '7'"),
        ({"event_id": None}, NOTED, "no event id"),
        ({}, {}, "no event_type"),
        ({}, {"event_type": ""}, "event_type cannot be ''"),
        ({}, {"event_type": "x" * 300}, "event_type cannot be"),
        ({}, {"event_type": "a\0b"}, "event_type cannot be"),
        ({"note": "\0"}, NOTED, "body holds a NUL"),
        ({"note": "\ud800"}, NOTED, "body holds a value that PostgreSQL cannot store"),
        ({"note": float("nan")}, NOTED, "body holds a value that PostgreSQL cannot store"),
        ({"note": "x" * 1_100_000}, NOTED, "1,048,576 are the limit"),
        ({}, {**NOTED, "user_id": "\0"}, "headers holds a NUL"),
        ({}, {**NOTED, "aggregate_id": "7"}, "aggregate_id cannot be"),
        ({}, {**NOTED, "aggregate_version": 0}, "aggregate_version cannot be"),
        ({}, {**NOTED, "aggregate_version": True}, "aggregate_version cannot be"),
        ({}, {**NOTED, "event_version": "two"}, "event_version cannot be"),
        ({"occurred_at": "soon"}, NOTED, "time of occurrence cannot be 'soon'"),
        ({"occurred_at": "2026-01-02T03:04:05"}, NOTED, "time of occurrence cannot be"),
        ({"occurred_at": "9999-12-31T23:59:59-10:00"}, NOTED, "time of occurrence cannot be"),
        ({"occurred_at": 5}, NOTED, "time of occurrence cannot be '5'"),
        ({"occurred_at": None}, NOTED, "no time of occurrence"),
    ],
)
def test_what_no_outbox_can_hold_is_told_with_its_reason(
    change: dict[str, Any], headers: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Unstorable) as refusal:
        read(None, headers, json.dumps({**SNAKE, **change}).encode())
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[1]", "JSON array"),
        (b"null", "JSON null"),
        (b"[" * 100_000, "no JSON"),
    ],
)
def test_a_body_that_is_no_object_is_none(body: bytes, reason: str) -> None:
    with pytest.raises(Unstorable, match=reason):
        read(EVENT, NOTED, body)


def sealed_type(layout: Any = "snake") -> type[DomainEvent]:
    from outbox_kernel.kernel import sensitive

    @event("order.whispered", layout=layout)
    class OrderWhispered(DomainEvent):
        buyer_id: str
        home_address: str | None = sensitive(subject="buyer_id")

    return OrderWhispered


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"buyer_id": None}, "its 'home_address' is kept for the subject in 'buyer_id', which has none"),
        ({"buyer_id": "b" * 501}, "which has 501 characters"),
        (
            {"$sealed": {}},
            r"its body has a key '\$sealed', under which an outbox has what it has encrypted itself",
        ),
    ],
)
def test_what_could_not_be_sealed_here_is_refused(changes: dict[str, Any], sentence: str) -> None:
    """O6: and so is what looks as if it were already."""
    body = {
        "event_id": EVENT,
        "occurred_at": TOLD,
        "buyer_id": "ada",
        "home_address": "12 Byron Row",
        **changes,
    }
    with isolated_definitions():
        sealed_type()
        with pytest.raises(Unstorable, match=sentence):
            read(None, {"event_type": "order.whispered", "event_version": 1}, json.dumps(body).encode())


def test_what_has_nothing_to_seal_needs_no_subject() -> None:
    """O6."""
    body = {"event_id": EVENT, "occurred_at": TOLD, "buyer_id": None, "home_address": None}
    with isolated_definitions():
        sealed_type()
        found = read(None, {"event_type": "order.whispered"}, json.dumps(body).encode())
    assert json.loads(found.payload)["home_address"] is None
