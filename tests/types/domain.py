"""What the author of a domain writes: events with payloads as people have them, and an aggregate (D4)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Self, assert_type
from uuid import UUID, uuid4

import attrs
from pydantic import BaseModel

from outbox_kernel import (
    AggregateRoot,
    DomainEvent,
    aggregate,
    applies,
    deserialize_event,
    event,
    sensitive,
    serialize_event,
    upcasts,
)


@attrs.frozen
class OrderId:
    value: UUID


@dataclass(frozen=True)
class Money:
    amount: Decimal
    currency: str = "EUR"


class Address(BaseModel):
    street: str
    city: str


@event("order.placed", version=2)
class OrderPlaced(DomainEvent):
    order_id: OrderId
    total: Money
    ship_to: Address
    notes: dict[str, Any] = attrs.Factory(dict[str, Any])
    email: str = sensitive(default="")
    token: Annotated[str, sensitive()] = ""


@event
class OrderShipped(DomainEvent):
    order_id: OrderId
    took: timedelta
    label: bytes = b""


@event("order.forgotten", layout="camel", version=2, first_version=2)
class OrderForgotten(DomainEvent):
    order_id: OrderId
    buyer: str | None = sensitive(subject="order_id", default=None)
    total: Money = sensitive(subject="order_id", forgotten=Money(Decimal(0)), kw_only=True)


@upcasts("order.placed", from_version=1)
def totals_have_a_currency(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "total": {"amount": payload["total"], "currency": "EUR"}}


@aggregate("order")
class Order(AggregateRoot):
    id: OrderId
    total: Money
    lines: list[str] = attrs.Factory(list[str])
    shipped: bool = False

    @classmethod
    def place(cls, total: Money, ship_to: Address) -> Self:
        order = cls(OrderId(uuid4()), total)
        order.record(OrderPlaced(order.id, total, ship_to, {"gift": True}))
        return order

    def ship(self, took: timedelta) -> None:
        self.shipped = True
        self.record(OrderShipped(self.id, took, label=b"\xff"))
        self.record(
            OrderForgotten(self.id, total=self.total), not_before=datetime.now(UTC) + timedelta(days=30)
        )


@event
class CounterRaised(DomainEvent):
    by: int


@aggregate
class Counter(AggregateRoot):
    id: UUID = attrs.Factory(uuid4)
    value: int = 0

    def raise_by(self, number: int) -> None:
        self.record(CounterRaised(number))

    @applies(CounterRaised)
    def _raised(self, event: CounterRaised) -> None:
        self.value += event.by


def what_they_are(order: Order, counter: Counter) -> None:
    placed = OrderPlaced(order.id, order.total, Address(street="Main", city="Bonn"), event_id=uuid4())
    assert_type(placed, OrderPlaced)
    assert_type(placed.event_id, UUID)
    assert_type(placed.occurred_at, datetime)
    assert_type(placed.total, Money)
    assert_type(placed.notes, dict[str, Any])
    assert_type(placed.email, str)
    assert_type(placed.token, str)
    assert_type(placed.aggregate_id, UUID | None)
    assert_type(placed.aggregate_version, int | None)
    assert_type(serialize_event(placed), str)
    assert_type(deserialize_event("order.placed", "{}"), DomainEvent)
    assert_type(Order.place(order.total, placed.ship_to), Order)
    assert_type(order.id, OrderId)
    assert_type(order.version, int)
    assert_type(order.recorded_events, tuple[DomainEvent, ...])
    assert_type(order.collect_events(), tuple[DomainEvent, ...])
    assert_type(Counter.replay(counter.recorded_events), Counter)
    assert_type(Counter().id, UUID)
    assert_type(Counter(value=5).value, int)
