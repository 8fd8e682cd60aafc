"""K2, C10: ids that are UUIDs, integers, texts, and value objects of one; and the UUID derived from each."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4, uuid5

import attrs
import pytest

from outbox_kernel.errors import AggregateHasNoId
from outbox_kernel.kernel import AggregateRoot, DomainEvent, EventBus, aggregate, event
from outbox_kernel.kernel.bus import stream_of
from outbox_kernel.kernel.catalogue import isolated_definitions
from outbox_kernel.kernel.envelope import enveloped
from outbox_kernel.kernel.errors import IdentityMoved
from outbox_kernel.kernel.identity import KEY_NAMESPACE, stream_key
from outbox_kernel.kernel.testing import InMemoryStore, InMemoryUnitOfWork, run_handler

ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")


@attrs.frozen
class Number:
    value: int


@dataclass(frozen=True)
class Code:
    value: str


@attrs.frozen
class Boxed:
    code: Code


class Colour(str, enum.Enum):  # noqa: UP042 - the kind whose str() is not its value
    RED = "red"


@event("identity.placed")
class Placed(DomainEvent):
    what: str


@aggregate("identity.order")
class Order(AggregateRoot):
    id: int
    what: str = ""


@aggregate("identity.item")
class Item(AggregateRoot):
    id: str


@aggregate("identity.invoice")
class Invoice(AggregateRoot):
    id: Number


@aggregate("identity.note")
class Note(AggregateRoot):
    id: int | None = None


@pytest.mark.parametrize(
    ("identity", "key"),
    [
        (42, "42"),
        (-7, "-7"),
        ("42", "42"),
        ("SKU/0815", "SKU/0815"),
        (Number(42), "42"),
        (Code("a b"), "a b"),
        (Boxed(Code("deep")), "deep"),
        (Colour.RED, "red"),
        (str(ID).upper(), str(ID).upper()),
        ("order-0192f0c1-2d3e-7a4b-8c5d-6e7f80", "order-0192f0c1-2d3e-7a4b-8c5d-6e7f80"),
        (ID.hex, ID.hex),
    ],
)
def test_a_key_stands_as_written_and_its_uuid_is_derived_from_that(identity: object, key: str) -> None:
    """C10: by a rule that any system can compute."""
    assert stream_key(identity) == (uuid5(UUID("b5c9cefb-cf37-521d-aac5-3d6089c46528"), key), key)


@pytest.mark.parametrize("identity", [ID, str(ID), Code(str(ID))])
def test_a_uuid_and_its_canonical_text_stand_for_themselves(identity: object) -> None:
    """C10: so that a text column full of UUIDs has the streams that one expects."""
    assert stream_key(identity) == (ID, None)


@pytest.mark.parametrize("identity", [None, True, 1.5, b"7", (1, 2), object()])
def test_what_is_no_key_identifies_nothing(identity: object) -> None:
    assert stream_key(identity) is None


@pytest.mark.parametrize(
    ("made", "key"), [(Order(42), "42"), (Item("a-1"), "a-1"), (Invoice(Number(7)), "7")]
)
def test_an_event_carries_the_key_of_its_aggregate(made: AggregateRoot, key: str) -> None:
    """K2, C10: on the event, and in its row."""
    made.record(placed := Placed("x"))
    derived = uuid5(KEY_NAMESPACE, key)
    assert (placed.aggregate_id, placed.aggregate_key, placed.aggregate_version) == (derived, key, 1)
    assert (enveloped(placed).aggregate_id, enveloped(placed).aggregate_key) == (derived, key)


@pytest.mark.parametrize(
    ("made", "wrong"),
    [(Order, "abc"), (Order, ID), (Item, 7), (Invoice, Code("x")), (Order, True), (Order, None)],
)
def test_an_id_of_another_kind_than_the_class_declares_records_nothing(made: Any, wrong: object) -> None:
    """K2: it would begin a stream that nobody finds."""
    with pytest.raises(AggregateHasNoId, match="as it declares"):
        made(wrong).record(Placed("x"))


def test_an_emitted_event_joins_the_stream_of_the_key_as_written() -> None:
    """C10: given as the aggregate has it, by class or by name."""
    Order(42).record(recorded := Placed("x"))
    for kind in (Order, "identity.order"):
        EventBus().emit(emitted := Placed("y"), aggregate_type=kind, aggregate_id=42)
        assert emitted.stamp[:2] == recorded.stamp[:2]
        assert emitted.aggregate_key == "42"


def test_where_the_aggregate_is_not_known_here_any_key_will_do() -> None:
    """K4: another service's."""
    assert stream_of("identity.elsewhere", "abc")[1:] == (uuid5(KEY_NAMESPACE, "abc"), "abc")
    assert stream_of("identity.elsewhere", ID)[1:] == (ID, None)


def test_an_event_of_an_aggregate_whose_row_makes_its_id_waits_for_it() -> None:
    """K2, C10: numbered at once."""
    note = Note()
    note.record(first := Placed("first"))
    note.record(second := Placed("second"))
    assert [(each.aggregate_id, each.aggregate_version) for each in (first, second)] == [(None, 1), (None, 2)]
    with pytest.raises(
        AggregateHasNoId, match=r"identity\.note without an id.*flush the aggregate before it records"
    ):
        enveloped(first)
    note.id = 7
    note.record(third := Placed("third"))
    assert note.collect_events() == (first, second, third)
    assert {each.aggregate_key for each in (first, second, third)} == {"7"}


async def test_the_store_in_memory_finds_an_aggregate_by_its_key_and_tells_of_it() -> None:
    """K12: as the database does."""
    store = InMemoryStore()
    async with InMemoryUnitOfWork(store) as uow:
        order = Order(42)
        order.record(Placed("x"))
        uow.repository(Order).add(order)
        await uow.commit()
        assert await uow.repository(Order).get(42) is order
    assert [(each.aggregate_key, each.event.aggregate_key) for each in store.outbox] == [("42", "42")]
    assert store.get(Order, 43) is None


async def test_the_store_in_memory_counts_where_a_row_would_make_the_id() -> None:
    """K12, C10: for those that have none, and past what is taken."""
    store, made, given = InMemoryStore(), [Note(), Note()], Note(2)
    store.put(given)
    async with InMemoryUnitOfWork(store) as uow:
        for note in made:
            note.record(Placed("x"))
            uow.repository(Note).add(note)
        await uow.commit()
    assert [note.id for note in (*made, given)] == [1, 3, 2]
    assert [each.aggregate_key for each in store.outbox] == ["1", "3"]


async def test_a_handler_in_a_unit_test_sees_the_key() -> None:
    """K12: of a recorded event, or as given."""
    seen: list[str | None] = []

    class Handler:
        async def handle(self, event: Placed) -> None:
            seen.append(event.aggregate_key)

    Order(42).record(placed := Placed("x"))
    await run_handler(Handler(), placed)
    await run_handler(Handler(), Placed("y"), aggregate_type=Order, aggregate_id=43)
    await run_handler(Handler(), Placed("z"), aggregate_type="identity.elsewhere", aggregate_id=uuid4())
    assert seen == ["42", "43", None]


@pytest.mark.parametrize(("first", "second"), [(7, 8), ("a", "b")])
async def test_an_id_that_moved_is_told_as_it_was_written(first: Any, second: Any) -> None:
    """C10: before it is stored and afterwards, and not by the UUID that is derived from it."""
    with isolated_definitions():

        @event("identity.moved")
        class Moved(DomainEvent):
            pass

        @aggregate("identity.moving")
        class Moving(AggregateRoot):
            id: int | str

        moving = Moving(first)
        moving.record(Moved())
        moving.id = second
        store = InMemoryStore()
        async with InMemoryUnitOfWork(store) as uow:
            uow.repository(Moving).add(moving)
            with pytest.raises(IdentityMoved, match=f"when its id was {first};"):
                await uow.commit()
        store.put(Moving(first))
        async with InMemoryUnitOfWork(store) as uow:
            found = await uow.repository(Moving).get(first)
            assert found is not None
            found.id = second
            with pytest.raises(IdentityMoved, match=f"is stored as {first}, and its id cannot"):
                await uow.commit()
