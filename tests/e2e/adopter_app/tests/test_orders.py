"""The application's own tests, with the fixtures that came with the wheel."""

from contexts.orders.events import OrderPlaced
from contexts.orders.use_cases import PlaceOrder

from outbox_kernel.testing import FrozenClock, InMemoryUnitOfWork, assert_recorded


async def test_placing_an_order_is_an_event(
    in_memory_uow: InMemoryUnitOfWork, frozen_clock: FrozenClock
) -> None:
    order_id = await PlaceOrder(in_memory_uow)(1250)
    assert_recorded(in_memory_uow, OrderPlaced(order_id, 1250))
    assert in_memory_uow.store.events[0].occurred_at == frozen_clock.now()
