"""K12, C10: the kit tells what was changed by what is stored of it, whatever a value's own idea of equality."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox_kernel.errors import StaleAggregate
from outbox_kernel.kernel import AggregateRoot, DomainEvent, aggregate, event
from outbox_kernel.kernel.testing import InMemoryStore, InMemoryUnitOfWork
from outbox_kernel.kernel.testing.identities import WeakIdentityMap


@event("copies.noted")
class Noted(DomainEvent):
    what: str


class Tag:
    """It says nothing of equality."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.self = self


class Slotted:
    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Bag(list[Any]):
    """A container of an application's own."""


@dataclass(eq=False)
class Point:
    x: int


class Closed:
    """What only a copy of its own making can be made of."""

    def __init__(self) -> None:
        self.text = "x"

    def __deepcopy__(self, memo: object) -> Closed:
        return Closed()

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError("closed")


@aggregate("copies.thing")
class Thing(AggregateRoot):
    id: UUID
    value: Any = None


VALUES: list[Any] = [
    Tag("x"),
    Slotted("x"),
    Point(1),
    Bag([Tag("x")]),
    [Tag("x")],
    {"a": Tag("x")},
    {Tag("x")},
    (Tag("x"), Slotted("y")),
    Closed(),
    object(),
    float("nan"),
    Decimal("NaN"),
    len,
    Tag,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
async def test_what_was_committed_is_readable_after_the_block_and_in_the_next(value: Any) -> None:
    """C10: it is no change to be a copy."""
    store = InMemoryStore()
    thing = Thing(uuid4(), value)
    async with InMemoryUnitOfWork(store) as uow:
        uow.repository(Thing).add(thing)
        await uow.commit()
    thing.record(Noted("still here"))
    async with InMemoryUnitOfWork(store) as uow:
        uow.repository(Thing).add(thing)
        found = await uow.repository(Thing).get(thing.id)
        await uow.commit()
    assert found is thing
    assert (thing.value is value, thing.version) == (True, 1)


@pytest.mark.parametrize("value", VALUES[:3], ids=lambda value: type(value).__name__)
async def test_a_change_inside_such_a_value_is_one(value: Any) -> None:
    """C10: it is stored, and taken back by a block without a commit."""
    store, name = InMemoryStore(), "x" if isinstance(value, Point) else "text"
    store.put(thing := Thing(uuid4(), value))
    async with InMemoryUnitOfWork(store) as uow:
        found = await uow.repository(Thing).get(thing.id)
        assert found is not None
        setattr(found.value, name, 7)
        await uow.commit()
        setattr(found.value, name, 8)
    stored = store.get(Thing, thing.id)
    assert stored is not None
    assert getattr(stored.value, name) == 7
    with pytest.raises(StaleAggregate):
        found.record(Noted("too late"))


def test_a_map_by_identity_forgets_what_is_gone() -> None:
    """K12: as the store does with aggregates that nobody holds."""
    kept: WeakIdentityMap[Tag, int] = WeakIdentityMap()
    one = Tag("x")
    one.self = None  # type: ignore[assignment]  # a cycle would wait for the collector
    kept.put(one, 1)
    assert (kept.get(one), kept.copy().get(one)) == (1, 1)
    kept.drop(one)
    kept.drop(one)
    assert kept.get(one) is None
    kept.put(one, 2)
    del one
    assert not kept._entries  # noqa: SLF001 - nothing else tells of it


def test_a_copy_of_such_a_map_made_while_something_goes_is_without_it() -> None:
    """K12: the collector may come in the middle of a copy."""
    kept, copies = WeakIdentityMap[Slotted | Point, int](), list[WeakIdentityMap[Slotted | Point, int]]()
    going, staying = Point(1), Point(2)
    kept.put(going, 1)
    kept.put(staying, 2)
    # The younger of two references to one object is told first, so that the map does not know yet.
    younger = weakref.ref(going, lambda _: copies.append(kept.copy()))
    del going
    assert younger() is None
    [copy] = copies
    assert (len(copy._entries), copy.get(staying)) == (1, 2)  # noqa: SLF001 - nothing else tells of it


def test_a_map_by_identity_keeps_the_last_value_and_one_that_goes_once_dropped_takes_no_other_along() -> None:
    """K12."""
    kept = WeakIdentityMap[Point, int]()
    dropped, staying = Point(1), Point(1)
    kept.put(dropped, 1)
    kept.put(staying, 2)
    kept.put(staying, 3)
    kept.drop(dropped)
    del dropped
    assert kept.get(staying) == 3
