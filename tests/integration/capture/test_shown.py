"""The view `outbox` shows what an event says without what is sensitive, to readers without its class (K11, S)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal
from uuid import uuid4

import asyncpg
import attrs
import pytest

from outbox_kernel.infrastructure.brokers.received import read as read_message
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from outbox_kernel.infrastructure.inbox.storing import Storage
from outbox_kernel.infrastructure.outbox import OutboxMiddleware
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.kernel import DomainEvent, EventBus, event, sensitive
from outbox_kernel.kernel.catalogue import isolated_definitions
from tests.bank import Bank, engine_of

SECRET = "hunter2"


@attrs.frozen
class Address:
    town: str
    street: str = sensitive()


@pytest.fixture(autouse=True)
def only_here() -> Iterator[None]:
    with isolated_definitions():
        yield


@pytest.fixture
async def witness(bank_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(bank_url)
    yield connection
    await connection.close()


async def shown(witness: Any) -> list[dict[str, Any]]:
    """What the view says of each event, the oldest first."""
    rows = await witness.fetch(
        "SELECT outbox.payload FROM outbox JOIN outbox_events ON event_id = id ORDER BY position"
    )
    return [json.loads(row["payload"]) for row in rows]


def moved(layout: Literal["snake", "camel"] = "snake") -> Any:
    @event("test.moved", layout=layout)
    class Moved(DomainEvent):
        what: str
        new_address: Address
        phone_numbers: list[Annotated[str, sensitive()]]
        token: str | None = sensitive(default=None)

    return Moved("house", Address("town", SECRET), [SECRET, SECRET], SECRET)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("layout", ["snake", "camel"])
async def test_what_capture_writes_is_masked_by_its_fields(
    bank: Bank, witness: Any, count: int, layout: Literal["snake", "camel"]
) -> None:
    told = moved(layout)
    async with SqlAlchemyUnitOfWork(bank.sessions) as uow:
        for _ in range(count):
            uow.emit(attrs.evolve(told, event_id=uuid4()))
        await uow.commit()
    for payload in await shown(witness):
        assert SECRET not in str(payload)
        assert payload["what"] == "house"
        expected = {"new_address", "phone_numbers", "token"}
        if layout == "camel":
            expected = {"newAddress", "phoneNumbers", "token"}
        assert {key for key, value in payload.items() if value == "***"} == expected


async def test_what_is_dispatched_by_hand_is_masked_too(bank: Bank, witness: Any) -> None:
    bus = EventBus()
    bus.emit(moved())
    async with bank.session() as session:
        await OutboxMiddleware.flush(session, bus)
        await session.commit()
    [payload] = await shown(witness)
    assert SECRET not in str(payload)
    assert payload["what"] == "house"


async def test_what_nobody_declares_is_shown_as_it_is_stored(bank: Bank, witness: Any) -> None:
    @event("test.plain")
    class Plain(DomainEvent):
        what: str

    async with SqlAlchemyUnitOfWork(bank.sessions) as uow:
        uow.emit(Plain("plain"))
        await uow.commit()
    assert [payload["what"] for payload in await shown(witness)] == ["plain"]
    assert await witness.fetchval("SELECT sensitive FROM outbox_events") is None


@pytest.mark.parametrize("is_known", [True, False])
async def test_what_a_queue_brings_is_masked_as_far_as_its_class_is_known(
    bank: Bank, bank_url: str, witness: Any, is_known: bool
) -> None:
    """Of an event that nobody knows here each field may be a secret."""
    told = moved()
    body = {"event_id": str(told.event_id), "event_type": "test.moved" if is_known else "test.unknown"}
    body |= {"what": "house", "token": SECRET, "occurred_at": "2026-01-01T00:00:00Z"}
    engine = engine_of(bank_url)
    line = Line(engine)
    await Storage("q").store(line, [read_message(None, {}, json.dumps(body).encode())])
    await line.close()
    await engine.dispose()
    [payload] = await shown(witness)
    assert (payload["token"], payload["what"]) == ("***", "house" if is_known else "***")
    assert payload["event_id"] == str(told.event_id)


@pytest.mark.parametrize(
    ("payload", "masks", "expected"),
    [
        ({"a": 1, "b": 2}, None, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, ["b", "c"], {"a": 1, "b": "***"}),
        ({"a": 1, "event_id": 2}, ["*"], {"a": "***", "event_id": 2}),
        ({"a": 1, "$sealed": {"b": {"key": 1, "text": SECRET}}}, None, {"a": 1, "b": "***"}),
        ({"a": 1, "b": {"$sealed": SECRET}}, ["b"], {"a": 1, "b": "***"}),
        ({"a": 1, "$sealed": SECRET}, None, {"a": "***"}),
        ({"$sealed": SECRET}, None, {}),
        ([SECRET], None, "***"),
        (SECRET, ["*"], "***"),
        (None, None, "***"),
        ({"a": SECRET}, "a", {"a": "***"}),
        ({"a": SECRET}, {"a": 1}, {"a": "***"}),
        ({"a": 1}, 7, {"a": 1}),
    ],
)
async def test_whatever_is_written_past_us_the_view_can_be_read(
    bank: Bank, witness: Any, payload: Any, masks: Any, expected: Any
) -> None:
    """R9: and what is sealed shows nothing, wherever it stands."""
    await witness.execute(
        "INSERT INTO outbox_events (event_id, event_type, event_version, payload, occurred_at, sensitive) "
        "VALUES ($1, 'any', 1, $2::text::jsonb, now(), $3::text::jsonb)",
        *(uuid4(), json.dumps(payload), None if masks is None else json.dumps(masks)),
    )
    assert await shown(witness) == [expected]
