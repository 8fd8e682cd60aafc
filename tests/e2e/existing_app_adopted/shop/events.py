"""What happens in the shop."""

from outbox_kernel import DomainEvent, event


@event("order.placed")
class OrderPlaced(DomainEvent):
    """Somebody wants something."""

    cents: int


@event("order.paid")
class OrderPaid(DomainEvent):
    """The money is there."""

    cents: int


@event("order.cancelled")
class OrderCancelled(DomainEvent):
    """Nobody paid."""
