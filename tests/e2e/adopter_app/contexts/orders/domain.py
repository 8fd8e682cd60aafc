"""Orders."""

from uuid import UUID, uuid4

from contexts.orders.events import OrderPlaced
from outbox_kernel import AggregateRoot, aggregate


@aggregate("order")
class Order(AggregateRoot):
    """What somebody wants."""

    id: UUID
    cents: int

    @classmethod
    def place(cls, cents: int) -> "Order":
        """Place an order."""
        order = cls(uuid4(), cents)
        order.record(OrderPlaced(order.id, cents))
        return order
