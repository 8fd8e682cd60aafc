"""What can be asked of orders."""

from uuid import UUID

import attrs

from contexts.orders.domain import Order
from outbox_kernel import UnitOfWork


@attrs.frozen
class PlaceOrder:
    """Places orders."""

    uow: UnitOfWork

    async def __call__(self, cents: int) -> UUID:
        """Place one, and return its id."""
        order = Order.place(cents)
        async with self.uow as uow:
            uow.repository(Order).add(order)
            await uow.commit()
        return order.id
