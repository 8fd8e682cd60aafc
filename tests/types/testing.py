"""What a tester writes: no database, no mock (D4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import assert_type
from uuid import uuid4

from outbox_kernel.testing import (
    ANY,
    CommittedEvent,
    FrozenClock,
    Given,
    InMemoryRepository,
    InMemoryStore,
    InMemoryUnitOfWork,
    Outcome,
    assert_recorded,
    exactly,
    given,
    run_handler,
    using_clock,
)
from tests.types.domain import (
    Address,
    Counter,
    CounterRaised,
    Money,
    Order,
    OrderId,
    OrderPlaced,
    OrderShipped,
)
from tests.types.reacting import Load, ShipOrder, count
from tests.types.use_cases import AlreadyShipped, PlaceOrder, PlaceOrderHandler, ShipOrderHandler

ADDRESS = Address(street="Main", city="Bonn")


class InMemoryOrders(InMemoryRepository[Order]):
    async def by_street(self, street: str) -> Order | None:
        return await self.find(lambda order: street in order.lines)


class InMemoryOrdersUnitOfWork(InMemoryUnitOfWork):
    unique = {Order: {"total": AlreadyShipped}}  # noqa: RUF012 - a constant of the class

    @property
    def orders(self) -> InMemoryOrders:
        return InMemoryOrders(self, Order)


async def test_an_order_is_placed() -> None:
    uow = InMemoryUnitOfWork()
    order_id = await PlaceOrderHandler(uow).handle(PlaceOrder("Main", "Bonn", 5))
    assert_recorded(uow, OrderPlaced(order_id, ANY, ADDRESS, ANY))
    async with uow:
        assert_type(uow.repository(Order), InMemoryRepository[Order])
        assert_type(await uow.repository(Order).get(order_id), Order | None)


async def test_what_is_stored_is_shipped() -> None:
    store = InMemoryStore()
    order = Order.place(Money(Decimal(5)), ADDRESS)
    store.put(order)
    uow = InMemoryOrdersUnitOfWork(store)
    await ShipOrderHandler(uow).handle(order.id, took=timedelta(hours=1))
    assert_recorded(uow, OrderShipped, CounterRaised(1))
    assert_type(store.outbox, list[CommittedEvent])


def test_a_counter_counts() -> None:
    counter = Counter()
    assert_type(given(counter), Given[Counter])
    outcome = given(counter).when(lambda it: it.raise_by(2))
    assert_type(outcome, Outcome)
    outcome.then(CounterRaised(2))


async def test_a_handler_says_no() -> None:
    event = OrderPlaced(OrderId(uuid4()), Money(Decimal(0)), ADDRESS)
    await run_handler(ShipOrder(ShipOrderHandler(InMemoryOrdersUnitOfWork())), event)


async def test_many_are_loaded_at_once() -> None:
    shipped = [OrderShipped(OrderId(uuid4()), timedelta(1)) for _ in range(3)]
    await run_handler(Load(), shipped, position=5)
    await run_handler(count, shipped)


def test_time_stands_still() -> None:
    with using_clock(FrozenClock(datetime(2026, 1, 2, tzinfo=UTC))) as clock:
        assert_type(clock, FrozenClock)
        shipped = OrderShipped(OrderId(clock.new_id()), timedelta(1))
        exactly(shipped)
