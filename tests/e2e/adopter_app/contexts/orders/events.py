"""What orders publish."""

from uuid import UUID

from outbox_kernel import DomainEvent, event


@event("order.placed")
class OrderPlaced(DomainEvent):
    """Somebody wants something."""

    order_id: UUID
    cents: int
