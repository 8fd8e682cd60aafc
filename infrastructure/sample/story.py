"""A week of the shop: orders, what each led to, and when, made up from a seed."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import attrs

from outbox_kernel.infrastructure.sample.limits import AGE_SECONDS_MIN, DAY_SECONDS, WEEK_ORDERS, WEEK_SECONDS
from outbox_kernel.infrastructure.sample.shop import NAMES, PREFIX, PRODUCTS, SHIPMENTS
from outbox_kernel.kernel.identity import stream_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from decimal import Decimal


@attrs.define(kw_only=True)
class Told:
    """An event of the sample."""

    event_id: UUID
    event_type: str
    seconds: float
    """How old it is."""
    aggregate_type: str | None
    key: object
    payload: dict[str, Any]
    headers: dict[str, Any]
    event_version: int = 1
    aggregate_version: int | None = None
    source: str | None = None
    waits: bool = False

    @property
    def identity(self) -> tuple[UUID | None, str | None]:
        """Its aggregate's id, and the key as written where that is no UUID."""
        found = None if self.key is None else stream_key(self.key)
        return (None, None) if found is None else found


class Story:
    """Makes the events of a week, in the order in which they were stored."""

    def __init__(self, now: datetime, seed: int = 7) -> None:
        self._now = now
        self._random = Random(seed)  # noqa: S311 - nobody gains by guessing what was bought

    def week(self) -> list[Told]:
        """Return all of it."""
        told = [each for number in range(WEEK_ORDERS) for each in self.order(number, self._moment())]
        told += [each for number in range(90) for each in self._customer(number)]
        told.append(self._odd())
        told.sort(key=lambda each: -each.seconds)
        versions: dict[object, int] = {}
        for each in told:
            if each.key is not None:
                each.aggregate_version = versions[each.key] = versions.get(each.key, 0) + 1
        return told

    def _moment(self) -> float:
        """Return how long ago an order was placed: more are in the evening than at night."""
        while True:
            seconds = self._random.uniform(5.0, WEEK_SECONDS)
            busy = 0.55 + 0.45 * math.cos((seconds % DAY_SECONDS) / DAY_SECONDS * 2 * math.pi)
            if self._random.random() < busy:
                return seconds

    def order(self, number: int, seconds: float) -> Iterator[Told]:
        """Yield an order and what handlers made of it, each caused by the one before."""
        roll, order_id = self._random, f"{10_000 + number}"
        customer, product = roll.randrange(1, 400), roll.choice([*PRODUCTS])
        pieces = roll.randrange(1, 5)
        total = PRODUCTS[product] * pieces
        placed = self._told(
            "order.placed",
            seconds,
            ("order", int(order_id)),
            {
                "order_id": order_id,
                "customer": customer,
                "email": f"customer-{customer}@example.org",
                "total": str(total),
                "currency": "EUR",
                "lines": [{"product": product, "pieces": pieces}],
            },
            user_id=f"customer-{customer}",
            request_id=f"req-{roll.randrange(16**8):08x}",
        )
        yield placed
        yield from self._led_to(placed, order_id, product, total)

    def _led_to(self, placed: Told, order_id: str, product: str, total: Decimal) -> Iterator[Told]:
        about, later = {"order_id": order_id}, placed.seconds
        reserved = self._told(
            "stock.reserved",
            later - 0.4,
            ("product", product),
            {**about, "product": product, "pieces": 1},
            placed,
        )
        if self._random.random() < 0.06:  # noqa: PLR2004 - a few are refused
            yield self._told("payment.refused", later - 0.9, ("order", int(order_id)), about, placed)
            return
        charged = self._told(
            "payment.charged",
            later - 1.1,
            ("order", int(order_id)),
            {**about, "amount": str(total), "card": "4111 1111 1111 1111"},
            placed,
        )
        yield from (reserved, charged)
        yield self._told("order.confirmed", later - 1.6, ("order", int(order_id)), about, charged)
        yield self._told(
            "receipt.sent", later - 2.0, None, {**about, "email": "customer@example.org"}, charged
        )
        if placed.seconds > DAY_SECONDS / 2:
            tracking = f"TRK{self._random.randrange(10**9):09d}"
            shipped = {**about, "carrier": "Post", "tracking": tracking}
            yield self._told(
                "order.shipped", later - 30_000, ("order", int(order_id)), shipped, reserved, source=SHIPMENTS
            )

    def _customer(self, number: int) -> Iterator[Told]:
        name = NAMES[number % len(NAMES)]
        payload = {"customer": number, "name": name, "email": f"customer-{number}@example.org"}
        yield self._told("customer.joined", self._moment(), ("customer", number), payload)

    def _odd(self) -> Told:
        """Return an event that is to be handled later, of a class that nobody here knows."""
        told = self._told("order.reminded", 40.0, None, {"note": "", "to": "nobody", "nested": {"empty": []}})
        return attrs.evolve(told, waits=True)

    def _told(
        self,
        name: str,
        seconds: float,
        aggregate: tuple[str, object] | None,
        payload: dict[str, Any],
        cause: Told | None = None,
        *,
        source: str | None = None,
        **headers: str,
    ) -> Told:
        seconds = max(AGE_SECONDS_MIN, seconds)
        event_id, occurred = self._new_id(seconds), self._now - timedelta(seconds=seconds)
        if cause is not None:
            headers = {k: v for k, v in cause.headers.items() if k != "causation_id"} | {
                "causation_id": str(cause.event_id),
                "correlation_id": cause.headers.get("correlation_id", str(cause.event_id)),
            }
        return Told(
            event_id=event_id,
            event_type=f"{PREFIX}{name}",
            seconds=seconds,
            aggregate_type=None if aggregate is None else aggregate[0],
            key=None if aggregate is None else aggregate[1],
            payload={"event_id": str(event_id), "occurred_at": occurred.isoformat(), **payload},
            headers=headers,
            source=source,
        )

    def _new_id(self, seconds: float) -> UUID:
        """Return a UUIDv7 of that age."""
        milliseconds = int((self._now.timestamp() - seconds) * 1_000)
        rest = self._random.getrandbits(74)
        return UUID(int=milliseconds << 80 | 7 << 76 | (rest >> 62) << 64 | 0b10 << 62 | (rest & (2**62 - 1)))


def columns(told: list[Told]) -> dict[str, list[Any]]:
    """Return the events as the statement takes them."""
    return {
        "event_ids": [each.event_id for each in told],
        "types": [each.event_type for each in told],
        "versions": [each.event_version for each in told],
        "aggregate_types": [each.aggregate_type for each in told],
        "aggregate_ids": [each.identity[0] for each in told],
        "aggregate_keys": [each.identity[1] for each in told],
        "aggregate_versions": [each.aggregate_version for each in told],
        "payloads": [json.dumps(each.payload) for each in told],
        "headers": [json.dumps(each.headers) for each in told],
        "sources": [each.source for each in told],
        "waits": [each.waits for each in told],
        "seconds": [each.seconds for each in told],
    }
