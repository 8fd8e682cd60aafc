"""An aggregate's history by pages, an event's causes and effects, and whether there is such a thing (O3, K10)."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox_kernel.infrastructure.operations import aggregates, lineage
from outbox_kernel.infrastructure.operations.aggregates import Aggregate, Place, events_of, find
from outbox_kernel.infrastructure.operations.finding import has_event, has_name
from outbox_kernel.infrastructure.operations.lineage import Kin
from outbox_kernel.infrastructure.operations.purging import stored_before
from outbox_kernel.infrastructure.operations.selection import AggregateKey
from tests.integration.operations.conftest import HANDLER, Outbox


async def emitted(outbox: Outbox, aggregate: UUID) -> UUID:
    """Store an event about an aggregate that has no number."""
    event_id = await outbox.event(event_type="bank.seen")
    await outbox.execute(
        "UPDATE outbox_events SET aggregate_type = 'bank.wallet', aggregate_id = $2 WHERE event_id = $1",
        *(event_id, aggregate),
    )
    return event_id


async def caused(outbox: Outbox, cause: UUID | str | None) -> UUID:
    event_id = await outbox.event()
    headers = {} if cause is None else {"causation_id": str(cause)}
    await outbox.execute(
        "UPDATE outbox_events SET headers = $2::text::jsonb WHERE event_id = $1",
        event_id,
        json.dumps(headers),
    )
    return event_id


@pytest.mark.parametrize("page", [1, 2, 3, 50])
async def test_a_history_is_told_by_pages_numbered_and_emitted_events_in_their_order(
    outbox: Outbox, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregates, "AGGREGATE_EVENTS_MAX", page)
    wallet = uuid4()
    stored = []
    for number in range(6):
        await outbox.event(uuid4())
        stored.append(await (emitted(outbox, wallet) if number % 3 == 1 else outbox.event(wallet)))
        if number % 3 == 1:
            await outbox.execute(
                "UPDATE outbox_events SET aggregate_version = NULL WHERE event_id = $1", stored[-1]
            )
        else:
            await outbox.execute(
                "UPDATE outbox_events SET aggregate_version = $2 WHERE event_id = $1", stored[-1], number + 1
            )
    [aggregate] = await find(outbox.desk, AggregateKey(wallet))
    assert aggregate == Aggregate("bank.wallet", wallet, None)
    told: list[UUID] = []
    place: Place | None = Place()
    while place is not None:
        found = await events_of(outbox.desk, aggregate, place)
        assert len(found.events) <= page
        told += [each.event_id for each in found.events]
        place = found.next
    assert told == stored[::-1]


async def test_an_id_may_be_of_aggregates_of_several_types(outbox: Outbox) -> None:
    one, other = await outbox.event(wallet := uuid4()), await outbox.event(wallet)
    await outbox.execute("UPDATE outbox_events SET aggregate_type = 'bank.card' WHERE event_id = $1", other)
    assert [each.type for each in await find(outbox.desk, AggregateKey(wallet))] == [
        "bank.card",
        "bank.wallet",
    ]
    [found] = await find(outbox.desk, AggregateKey(wallet, "bank.wallet"))
    assert [each.event_id for each in (await events_of(outbox.desk, found, Place())).events] == [one]
    assert str(found) == f"bank.wallet:{wallet}"
    assert str(Aggregate("bank.card", wallet, "42")) == "bank.card:42"
    assert await find(outbox.desk, AggregateKey(uuid4())) == []


def shape(kin: Kin, names: dict[UUID, str]) -> Any:
    name = names[kin.event_id]
    return {name: [shape(each, names) for each in kin.effects]} if kin.effects else name


async def test_an_event_is_told_with_what_it_comes_from_and_what_it_led_to(outbox: Outbox) -> None:
    names: dict[UUID, str] = {}

    async def store(name: str, cause: UUID | None) -> UUID:
        event_id = await caused(outbox, cause)
        names[event_id] = name
        return event_id

    root = await store("root", None)
    middle = await store("middle", root)
    await store("sibling", root)
    leaf = await store("leaf", middle)
    await store("last", leaf)
    await store("stranger", None)
    told = await lineage.lineage(outbox.desk, middle)
    assert told is not None
    # Of what else a cause has led to nothing is told: that event's own page does.
    assert shape(told.root, names) == {"root": [{"middle": [{"leaf": ["last"]}]}]}
    assert not told.cause_is_gone
    assert shape((await lineage.lineage(outbox.desk, root)).root, names) == {  # type: ignore[union-attr]
        "root": [{"middle": [{"leaf": ["last"]}]}, "sibling"]
    }
    assert await lineage.lineage(outbox.desk, uuid4()) is None


@pytest.mark.parametrize("cause", ["no id", str(uuid4()), "x" * 3_000])
async def test_a_cause_that_is_no_event_here_is_gone(outbox: Outbox, cause: str) -> None:
    event_id = await caused(outbox, cause)
    told = await lineage.lineage(outbox.desk, event_id)
    assert told is not None
    assert told.cause_is_gone
    assert told.events == 1


async def test_an_event_that_names_itself_as_its_cause_ends_the_walk(outbox: Outbox) -> None:
    event_id = await outbox.event()
    await outbox.execute(
        "UPDATE outbox_events SET headers = jsonb_build_object('causation_id', event_id) WHERE event_id = $1",
        event_id,
    )
    told = await lineage.lineage(outbox.desk, event_id)
    assert told is not None
    assert told.events == 1


async def test_it_is_known_whether_there_is_such_a_thing(outbox: Outbox) -> None:
    event_id = await outbox.event()
    await outbox.subscription()
    assert await has_event(outbox.desk, event_id)
    assert await has_event(outbox.desk, 1)
    assert not await has_event(outbox.desk, uuid4())
    assert not await has_event(outbox.desk, 2)
    assert await has_name(outbox.desk, HANDLER)
    assert not await has_name(outbox.desk, "bank.Nobody")


async def test_how_much_is_old_is_known_by_positions(outbox: Outbox) -> None:
    assert await stored_before(outbox.desk, 7) == 0
    for days_old in (10, 9, 1):
        await outbox.event(days_old=days_old)
    assert await stored_before(outbox.desk, 7) == 2
    assert await stored_before(outbox.desk, 0) == 3
