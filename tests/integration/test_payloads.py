"""K8: what PostgreSQL gives back of a payload is the event that was stored, whatever its fields hold."""

from __future__ import annotations

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_kernel.kernel import DomainEvent, deserialize_event, serialize_event
from outbox_kernel.kernel.catalogue import event_type_of
from outbox_kernel.kernel.testing.copying import same_state
from tests import servers
from tests.properties.catalogue import CATALOGUE, Anything
from tests.properties.wire_values import events

EVENTS = st.one_of([events(cls) for cls in CATALOGUE])


def through_jsonb(url: str, payload: str) -> str:
    async def ask() -> str:
        connection = await asyncpg.connect(url)
        try:
            return str(await connection.fetchval("SELECT $1::text::jsonb::text", payload))
        finally:
            await connection.close()

    return servers.run(ask())


def back(found: DomainEvent, text: str) -> DomainEvent:
    kind = event_type_of(type(found))
    return deserialize_event(kind.name, text, kind.version)


@given(found=EVENTS)
def test_an_event_of_every_shape_comes_back_from_jsonb(postgres_url: str, found: DomainEvent) -> None:
    assert same_state(back(found, through_jsonb(postgres_url, serialize_event(found))), found)


@pytest.mark.parametrize("value", [1.0, -0.5, 1e-7, 5e-324, 9007199254740993, 1e15, 10**300], ids=repr)
def test_a_number_in_free_json_comes_back_as_it_was(postgres_url: str, value: float) -> None:
    found = Anything({"number": value})
    assert same_state(back(found, through_jsonb(postgres_url, serialize_event(found))), found)


@pytest.mark.parametrize(
    "value", [1e16, -1e23, 1.2345678901234567e25, 1.7976931348623157e308, -0.0], ids=repr
)
def test_a_float_that_jsonb_cannot_keep_comes_back_equal(postgres_url: str, value: float) -> None:
    found = Anything({"number": value})
    assert back(found, through_jsonb(postgres_url, serialize_event(found))) == found
