"""What the author of a handler writes: classes and functions, for classes of events and for patterns (D4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

import attrs

from outbox_kernel import (
    EXPONENTIAL,
    TIERED,
    BatchHandler,
    DomainEvent,
    EventHandler,
    Reject,
    RetryAfter,
    RetrySchedule,
    StoredEvent,
    Unavailable,
    current_delivery,
    get_handlers_for,
    handles,
)
from outbox_kernel.kernel import Delivery, HandlerRegistration
from tests.types.domain import OrderPlaced, OrderShipped
from tests.types.use_cases import ShipOrderHandler


@handles(OrderPlaced, retry=RetrySchedule.bounded(3), timeout=5, on_dead="continue")
@attrs.frozen
class ShipOrder:
    ship: ShipOrderHandler

    async def handle(self, event: OrderPlaced) -> None:
        assert_type(current_delivery(), Delivery)
        if not event.total.amount:
            raise Reject("nothing to ship")
        if event.order_id.value.int % 2:
            raise Unavailable("the van", "it does not start")
        raise RetryAfter(60, "the van is out")


@handles(OrderPlaced, retry=TIERED)
@handles(OrderShipped, name="orders.Tell", retry=EXPONENTIAL)
class Tell:
    async def handle(self, event: OrderPlaced | OrderShipped) -> None:
        assert_type(event.order_id.value.hex, str)


@handles(OrderShipped, queue="shipping", atomic=True, ordered=False, concurrency=4, rate="100/s")
async def thank(event: OrderShipped, ship: ShipOrderHandler) -> None:
    assert_type(ship, ShipOrderHandler)


@handles(OrderShipped)
def print_label(event: OrderShipped) -> None:
    assert_type(event.label, bytes)


@handles("order.*", start="beginning")
async def audit(event: StoredEvent) -> None:
    assert_type(event, StoredEvent)


@handles(OrderPlaced, OrderShipped, batch=200, rate="30/min")
class Load:
    async def handle(self, events: Sequence[OrderPlaced | OrderShipped]) -> None:
        assert_type(events[0].order_id.value.hex, str)


@handles("order.*", batch=200)
def count(events: Sequence[StoredEvent]) -> None:
    assert_type(events[-1], StoredEvent)


def what_they_are(ship: ShipOrderHandler) -> None:
    handler: EventHandler[OrderPlaced] = ShipOrder(ship)
    also: EventHandler[OrderShipped] = Tell()
    many: BatchHandler[OrderShipped] = Load()
    assert_type(ShipOrder(ship).ship, ShipOrderHandler)
    assert_type(get_handlers_for(OrderPlaced), tuple[HandlerRegistration, ...])
    event_class: type[DomainEvent] = OrderPlaced
    get_handlers_for(event_class)
    print(handler, also, many)  # noqa: T201 - they are only checked
