"""What a broker is sent of an event (X5)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from outbox_kernel.errors import DefinitionError, InvalidContext
from outbox_kernel.kernel import DomainEvent, event, event_context, serialize_event
from outbox_kernel.kernel.catalogue import Payload, event_type_of
from outbox_kernel.kernel.context import Header
from outbox_kernel.kernel.events import RESERVED_FIELDS
from outbox_kernel.kernel.published import published_body

ORDER = UUID("01890000-0000-7000-8000-0000000000aa")
EVENT = UUID("01890000-0000-7000-8000-000000000001")
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
ENVELOPE_KEYS = {"event_type", "aggregate_type", "aggregate_id", "timestamp"}


@event("published.shipped")
class Shipped(DomainEvent):
    user_id: str
    parcels: int


@event("published.shipped_in_camel", layout="camel")
class ShippedInCamel(DomainEvent):
    user_id: str
    parcels: int


def body_of(found: DomainEvent, **headers: Header) -> Payload:
    return published_body(
        json.loads(serialize_event(found)),
        headers,
        event_type=event_type_of(type(found)).name,
        aggregate_type="order",
        aggregate_id=ORDER,
        occurred_at=found.occurred_at,
    )


def test_a_snake_body_is_the_payload_with_the_envelope_and_the_context() -> None:
    found = Shipped("the buyer", 2, event_id=EVENT, occurred_at=MOMENT)
    assert body_of(found, request_id="r-1", retried=None) == {
        "event_id": str(EVENT),
        "occurred_at": "2026-01-02T03:04:05.678901+00:00",
        "user_id": "the buyer",
        "parcels": 2,
        "event_type": "published.shipped",
        "aggregate_type": "order",
        "aggregate_id": str(ORDER),
        "timestamp": "2026-01-02T03:04:05.678901+00:00",
        "request_id": "r-1",
        "retried": None,
    }


def test_the_events_own_field_wins_over_the_contexts() -> None:
    assert body_of(Shipped("the buyer", 2), user_id="the clerk")["user_id"] == "the buyer"


def test_a_camel_body_is_exactly_the_payload() -> None:
    found = ShippedInCamel("the buyer", 2)
    assert body_of(found, user_id="the clerk", request_id="r-1") == json.loads(serialize_event(found))


def test_the_timestamp_is_in_utc_wherever_the_database_is() -> None:
    elsewhere = MOMENT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    payload = {"event_id": str(EVENT)}
    body = published_body(
        payload, {}, event_type="any", aggregate_type=None, aggregate_id=None, occurred_at=elsewhere
    )
    assert body == {
        "event_id": str(EVENT),
        "event_type": "any",
        "aggregate_type": None,
        "aggregate_id": None,
        "timestamp": "2026-01-02T03:04:05.678901+00:00",
    }


@pytest.mark.parametrize("layout", ["snake", "camel"])
def test_what_was_stored_stays_as_it_is(layout: str) -> None:
    found = (Shipped if layout == "snake" else ShippedInCamel)("the buyer", 2)
    payload = json.loads(serialize_event(found))
    before = dict(payload)
    body = published_body(
        payload, {}, event_type="any", aggregate_type=None, aggregate_id=None, occurred_at=MOMENT
    )
    body["more"] = True
    assert payload == before


def test_the_body_has_no_key_that_an_event_or_a_context_could_take() -> None:
    added = set(body_of(Shipped("the buyer", 2))) - set(json.loads(serialize_event(Shipped("the buyer", 2))))
    assert added == ENVELOPE_KEYS <= RESERVED_FIELDS


@pytest.mark.parametrize("key", sorted(ENVELOPE_KEYS))
def test_a_field_or_a_header_named_like_a_key_of_the_envelope_is_refused(key: str) -> None:
    body = {"__annotations__": {key: str}, "__module__": __name__}
    with pytest.raises(DefinitionError, match=f"field named '{key}', which the envelope uses"):
        event("published.clash")(type("Clash", (DomainEvent,), body))
    with (
        pytest.raises(InvalidContext, match=f"header '{key}' is a key of the envelope"),
        event_context(**{key: 1}),
    ):
        pass
