"""What the author of a use case writes: the unit of work, its repositories, and trying again (D4)."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Protocol, assert_type
from uuid import UUID

import attrs

from outbox_kernel import (
    Conflict,
    EventBus,
    NotFound,
    Repository,
    UnitOfWork,
    event_context,
    retry_on_conflict,
)
from outbox_kernel.errors import ConcurrencyError, KernelError
from tests.types.domain import Address, Counter, CounterRaised, Money, Order, OrderId


@attrs.frozen
class PlaceOrder:
    street: str
    city: str
    cents: int


class OrderNotFound(NotFound):
    """No order has this id."""


class AlreadyShipped(Conflict):
    """The order is on its way."""


@attrs.define
class PlaceOrderHandler:
    uow: UnitOfWork

    @retry_on_conflict
    async def handle(self, command: PlaceOrder) -> OrderId:
        order = Order.place(Money(Decimal(command.cents)), Address(street=command.street, city=command.city))
        async with self.uow as uow:
            assert_type(uow, UnitOfWork)
            assert_type(uow.repository(Order), Repository[Order])
            uow.repository(Order).add(order)
            await uow.commit()
        return order.id


class Orders(Repository[Order], Protocol):
    async def by_street(self, street: str) -> Order | None: ...


class OrdersUnitOfWork(UnitOfWork, Protocol):
    @property
    def orders(self) -> Orders: ...


@attrs.define
class ShipOrderHandler:
    uow: OrdersUnitOfWork

    @retry_on_conflict(attempts=5)
    async def handle(self, order_id: OrderId, *, took: timedelta) -> bool:
        async with self.uow as uow:
            assert_type(uow, OrdersUnitOfWork)
            order = await uow.orders.get(order_id)
            assert_type(order, Order | None)
            assert_type(await uow.orders.by_street("Main"), Order | None)
            if order is None:
                raise OrderNotFound
            if order.shipped:
                raise AlreadyShipped
            order.ship(took)
            assert_type(uow.bus, EventBus)
            uow.emit(CounterRaised(1), aggregate_type=Counter, aggregate_id=order_id)
            with event_context(user_id="u-7"):
                await uow.commit()
        return True


async def what_they_return(place: PlaceOrderHandler, ship: ShipOrderHandler) -> None:
    order_id = await place.handle(PlaceOrder("Main", "Bonn", 5))
    assert_type(order_id, OrderId)
    assert_type(order_id.value, UUID)
    try:
        assert_type(await ship.handle(order_id, took=timedelta(1)), bool)
    except ConcurrencyError as error:
        assert_type(error, ConcurrencyError)
        as_any_other: KernelError = error
        raise as_any_other from None
