"""K12: what is particular to the unit of work in memory; what it shares is in tests/conformance."""

from collections import namedtuple
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest

from outbox_kernel.errors import (
    AggregateHasNoId,
    AggregateIdTaken,
    ConcurrencyError,
    KernelError,
    StaleAggregate,
    UnitOfWorkNotOpen,
    VersionMoved,
)
from outbox_kernel.kernel import AggregateRoot, DomainEvent, UnitOfWork, aggregate, event
from outbox_kernel.kernel.testing import (
    InMemoryRepository,
    InMemoryStore,
    InMemoryUnitOfWork,
    assert_recorded,
)
from outbox_kernel.kernel.testing.copying import copied, same_state

Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024 - one without types is what is tested


@event("store.ordered")
class Ordered(DomainEvent):
    what: str


@attrs.define(eq=False)
class Line:
    """A child entity, which knows its order."""

    what: str
    order: "Order"
    tags: set[str] = attrs.Factory(set)


@attrs.frozen
class Address:
    street: str
    notes: list[str]


@attrs.frozen
class OrderId:
    value: UUID


@aggregate("store.order")
class Order(AggregateRoot):
    id: OrderId
    customer: str | None = None
    lines: list[Line] = attrs.Factory(list)
    address: Address | None = None

    def add_line(self, what: str) -> None:
        self.lines.append(Line(what, self))
        self.record(Ordered(what))


class Taken(Exception):
    pass


class Orders(InMemoryRepository[Order]):
    async def of(self, customer: str) -> Order | None:
        return await self.find(lambda order: order.customer == customer)


class OrdersUnitOfWork(InMemoryUnitOfWork):
    unique = {Order: {("customer", "address"): Taken}}  # noqa: RUF012 - a constant of the class

    @property
    def orders(self) -> Orders:
        return Orders(self, Order)


def order(customer: str | None = None) -> Order:
    return Order(OrderId(uuid4()), customer)


def test_it_is_a_unit_of_work() -> None:
    uow: UnitOfWork = InMemoryUnitOfWork()
    assert isinstance(uow, InMemoryUnitOfWork)


async def test_a_row_shares_nothing_with_the_object_it_came_from() -> None:
    store, mine = InMemoryStore(), order("ada")
    mine.address = Address("Main 1", ["ring twice"])
    mine.add_line("tea")
    async with InMemoryUnitOfWork(store) as uow:
        uow.repository(Order).add(mine)
        await uow.commit()
    mine.lines[0].tags.add("late")
    mine.lines[0].what = "coffee"
    mine.address.notes.append("late")
    stored = store.get(Order, mine.id)
    assert stored is not None
    assert stored.lines[0].what == "tea"
    assert stored.lines[0].tags == set()
    assert stored.lines[0].order is stored
    assert stored.address == Address("Main 1", ["ring twice"])


async def test_a_change_of_a_child_is_a_change_of_its_root() -> None:
    store, mine = InMemoryStore(), order()
    mine.add_line("tea")
    store.put(mine)
    async with InMemoryUnitOfWork(store) as first, InMemoryUnitOfWork(store) as second:
        for uow, what in ((first, "milk"), (second, "rum")):
            found = await uow.repository(Order).get(mine.id)
            assert found is not None
            found.lines[0].what = what
        await first.commit()
        with pytest.raises(ConcurrencyError):
            await second.commit()
    stored = store.get(Order, mine.id)
    assert stored is not None
    assert stored.lines[0].what == "milk"


async def test_what_is_put_is_stored_already_and_its_events_are_long_delivered() -> None:
    uow, mine = OrdersUnitOfWork(), order("ada")
    mine.add_line("tea")
    uow.store.put(mine)
    assert_recorded(uow)
    assert mine.recorded_events == ()
    async with uow:
        found = await uow.orders.get(mine.id)
        assert found is not None
        found.add_line("milk")
        await uow.commit()
    assert_recorded(uow, Ordered("milk"))
    assert uow.store.outbox[0].aggregate_version == 2


async def test_a_committed_event_is_restored_with_where_it_stands() -> None:
    uow, mine = OrdersUnitOfWork(), order()
    mine.add_line("tea")
    recorded = mine.recorded_events
    async with uow:
        uow.orders.add(mine)
        await uow.commit()
    (found,) = uow.store.events
    assert (found,) == recorded
    assert found is not recorded[0]
    assert (found.aggregate_type, found.aggregate_id, found.aggregate_version) == (
        "store.order",
        mine.id.value,
        1,
    )


async def test_an_event_with_the_id_of_another_is_refused() -> None:
    """K12: `attrs.evolve` keeps the id, and the outbox takes each once."""
    uow, first = OrdersUnitOfWork(), Ordered("tea")
    evolve: Any = attrs.evolve  # which mypy would have know that an event is an attrs class
    async with uow:
        uow.emit(first)
        uow.emit(evolve(first, what="milk"))
        with pytest.raises(
            ConcurrencyError, match=f"event {first.event_id} is in the outbox already.*attrs.evolve"
        ):
            await uow.commit()
        uow.emit(evolve(first))
        await uow.commit()
        uow.emit(evolve(first))
        with pytest.raises(ConcurrencyError, match="is in the outbox already"):
            await uow.commit()
    assert len(uow.store.outbox) == 1


async def test_an_aggregate_is_found_by_its_id_or_the_uuid_in_it() -> None:
    uow, mine = OrdersUnitOfWork(), order()
    uow.store.put(mine)
    async with uow:
        assert await uow.orders.get(mine.id) is await uow.orders.get(mine.id.value) is not None
    assert uow.store.get(Order, uuid4()) is None


async def test_named_queries_see_what_the_block_sees() -> None:
    uow, ada, brian, carl = OrdersUnitOfWork(), order("ada"), order("brian"), order("carl")
    uow.store.put(ada, brian)
    async with uow:
        uow.orders.add(carl)
        assert await uow.orders.of("carl") is carl
        found = await uow.orders.of("ada")
        assert found is not None
        found.customer = "ada the second"
        assert await uow.orders.of("ada the second") is found
        assert await uow.orders.of("ada") is None
        await uow.orders.remove(found)
        assert [each.customer for each in await uow.orders.list()] == ["brian", "carl"]
        assert await uow.orders.get(ada.id) is None
        await uow.rollback()
        assert {each.customer for each in await uow.orders.list()} == {"ada", "brian"}
    assert len(uow.store.all(Order)) == 2


async def test_a_repository_is_of_use_in_its_block_alone() -> None:
    uow = OrdersUnitOfWork()
    async with uow:
        orders = uow.orders
    with pytest.raises(UnitOfWorkNotOpen):
        orders.add(order())
    with pytest.raises(UnitOfWorkNotOpen):
        await orders.list()


async def test_two_new_ones_of_one_commit_are_unique_as_well() -> None:
    uow, home = OrdersUnitOfWork(), Address("Main 1", [])
    async with uow:
        for _ in range(2):
            mine = order("ada")
            mine.address = home
            uow.orders.add(mine)
        with pytest.raises(Taken):
            await uow.commit()
    assert uow.store.all(Order) == []


async def test_what_is_absent_equals_nothing() -> None:
    uow = OrdersUnitOfWork()
    async with uow:
        uow.orders.add(order("ada"))
        uow.orders.add(order("ada"))
        await uow.commit()
    assert len(uow.store.all(Order)) == 2


async def test_a_field_of_a_stale_aggregate_says_so() -> None:
    uow, mine = OrdersUnitOfWork(), order("ada")
    uow.store.put(mine)
    async with uow:
        found = await uow.orders.get(mine.id)
        assert found is not None
        await uow.rollback()
        with pytest.raises(StaleAggregate, match="load it again"):
            _ = found.customer


async def test_a_stale_aggregate_that_was_changed_all_the_same_is_refused() -> None:
    uow, mine = OrdersUnitOfWork(), order("ada")
    uow.store.put(mine)
    async with uow:
        found = await uow.orders.get(mine.id)
        assert found is not None
        await uow.rollback()
        found.customer = "brian"
        with pytest.raises(StaleAggregate):
            await uow.commit()


async def test_an_aggregate_without_id_cannot_be_stored() -> None:
    nameless: Any = None
    async with InMemoryUnitOfWork() as uow:
        uow.repository(Order).add(Order(nameless))
        with pytest.raises(AggregateHasNoId, match="give it one before adding it"):
            await uow.commit()


async def test_an_id_is_taken_also_without_events() -> None:
    uow, mine = OrdersUnitOfWork(), order()
    uow.store.put(mine)
    async with uow:
        uow.orders.add(Order(mine.id))
        with pytest.raises(AggregateIdTaken) as refused:
            await uow.commit()
    assert (refused.value.aggregate_type, refused.value.aggregate_id) == ("store.order", mine.id.value)


async def test_an_id_without_events_is_free_again_after_its_removal() -> None:
    uow, mine = OrdersUnitOfWork(), order("first")
    uow.store.put(mine)
    async with uow:
        await uow.orders.remove(mine)
        uow.orders.add(Order(mine.id, "second"))
        await uow.commit()
    assert [each.customer for each in uow.store.all(Order)] == ["second"]


async def test_two_of_one_id_in_one_commit_cannot_both_have_an_event_of_one_number() -> None:
    uow, mine, again = OrdersUnitOfWork(), order("first"), order("second")
    mine.add_line("tea")
    uow.store.put(mine)
    again.id = mine.id
    for what in ("milk", "rum"):
        again.add_line(what)
    async with uow:
        mine.add_line("late")
        await uow.orders.remove(mine)
        uow.orders.add(again)
        with pytest.raises(ConcurrencyError):
            await uow.commit()
    assert [each.customer for each in uow.store.all(Order)] == ["first"]


async def test_only_what_is_stored_can_be_removed() -> None:
    async with OrdersUnitOfWork() as uow:
        with pytest.raises(KernelError, match="not stored, so it cannot be removed"):
            await uow.orders.remove(order())


async def test_a_second_object_of_one_row_is_refused() -> None:
    uow, mine = OrdersUnitOfWork(), order()
    uow.store.put(mine)
    async with uow:
        await uow.orders.get(mine.id)
        with pytest.raises(KernelError, match="at hand already as another object"):
            uow.orders.add(mine)


async def test_what_was_removed_elsewhere_is_none_when_it_is_loaded_again() -> None:
    store, mine = InMemoryStore(), order()
    store.put(mine)
    async with OrdersUnitOfWork(store) as uow, OrdersUnitOfWork(store) as other:
        await uow.orders.get(mine.id)
        await other.orders.remove(mine)
        await other.commit()
        await uow.rollback()
        assert await uow.orders.get(mine.id) is None


async def test_an_aggregate_without_decorator_is_stored_if_it_records_nothing() -> None:
    @attrs.define(slots=False, eq=False)
    class Bare(AggregateRoot):
        id: UUID

    bare = Bare(uuid4())
    async with InMemoryUnitOfWork() as uow:
        uow.repository(Bare).add(bare)
        await uow.commit()
        uow.repository(Bare).add(Bare(bare.id))
        with pytest.raises(AggregateIdTaken, match=f"Bare {bare.id}"):
            await uow.commit()


async def test_a_lowered_version_is_refused() -> None:
    uow, mine = OrdersUnitOfWork(), order()
    mine.add_line("tea")
    uow.store.put(mine)
    async with uow:
        found = await uow.orders.get(mine.id)
        assert found is not None
        found.version = 0
        with pytest.raises(VersionMoved):
            await uow.commit()


@pytest.mark.parametrize(
    "value",
    [
        [1, [2]],
        {"a": {"b": [1]}},
        {1, 2},
        frozenset({1}),
        (1, [2]),
        Pair(1, [2]),
        Decimal(1),
        Address("Main 1", ["a"]),
        None,
    ],
    ids=repr,
)
def test_a_copy_is_stored_alike_and_of_the_same_kind(value: Any) -> None:
    twin = copied(value)
    assert same_state(value, twin)
    assert type(twin) is type(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        ([1], [1, 2]),
        ([1], [2]),
        ([1], {1}),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, [("a", 1)]),
        ({1}, {2}),
        ({1}, [1]),
        (Address("a", []), Address("b", [])),
        (Address("a", []), None),
        (Address("a", []), OrderId(uuid4())),
    ],
    ids=repr,
)
def test_what_would_be_stored_otherwise_is_not_the_same(one: Any, other: Any) -> None:
    assert not same_state(one, other)
    assert not same_state(other, one)


def test_entities_are_compared_by_what_is_in_them() -> None:
    one, other = order(), order()
    other.id = one.id
    for each in (one, other):
        each.lines = [Line("tea", each)]
    assert same_state(one, other)
    assert same_state({1: {one}}, {1: {other}})
    other.lines[0].tags.add("hot")
    assert not same_state(one, other)


@aggregate("kit.vehicle")
class Vehicle(AggregateRoot):
    id: UUID


@aggregate("kit.car")
class Car(Vehicle):
    doors: int = 4


async def test_what_is_derived_from_a_class_is_found_as_one_of_it() -> None:
    """C10: as a database finds what inherits its mapping; new and stored, alone and in a list."""
    store, car = InMemoryStore(), Car(uuid4())
    async with InMemoryUnitOfWork(store) as uow:
        vehicles = uow.repository(Vehicle)
        vehicles.add(car)
        assert await vehicles.get(car.id) is car
        assert await vehicles.list() == [car]
        await uow.commit()
        assert await vehicles.get(car.id) is car
        assert await uow.repository(Car).get(car.id) is car
    async with InMemoryUnitOfWork(store) as uow:
        found = await uow.repository(Vehicle).get(car.id)
        assert isinstance(found, Car)
        assert await uow.repository(Vehicle).list() == [found]
    assert isinstance(store.get(Vehicle, car.id), Car)
    assert store.get(Vehicle, uuid4()) is None
