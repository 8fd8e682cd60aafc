"""Gauges: what `status` shows, as numbers for graphs and alarms (O4)."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from outbox_kernel.infrastructure.operations.abilities import relay_of, stranded_among
from outbox_kernel.infrastructure.operations.limits import COUNT_BYTES_MAX, LAG_EVENTS_MAX
from outbox_kernel.infrastructure.operations.overview import state_of, stuck_queues
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.outbox.sql.gauges import GAUGES
from outbox_kernel.infrastructure.outbox.sql.named import arguments
from outbox_kernel.infrastructure.telemetry import instruments as numbers
from outbox_kernel.infrastructure.telemetry.limits import ASK_SECONDS_MAX
from outbox_kernel.infrastructure.telemetry.metrics import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlalchemy.ext.asyncio import AsyncEngine

    from outbox_kernel.infrastructure.operations.abilities import Relay
    from outbox_kernel.infrastructure.operations.overview import SubscriptionState

_OF_RELAY = ("started_at", "renewed_at", "expires_at")
_OF_SUBSCRIPTION = ("since", "paused_at", "retired_at")


class Gauges:
    """Asks one outbox, on a connection of its own."""

    def __init__(self, engine: AsyncEngine, schema: str | None = None) -> None:
        self._line = Line(engine, deadline_seconds=ASK_SECONDS_MAX)
        self._schema = schema

    async def __call__(self) -> list[Sample]:
        """Return how things stand."""
        text, names = GAUGES.for_line(self._schema)
        given = {
            "now": None,
            "name": None,
            "look_max": LAG_EVENTS_MAX,
            "count_bytes_max": COUNT_BYTES_MAX,
        }
        [row] = await self._line.fetch(text, *arguments(names, given))
        return list(_samples(dict(row)))

    async def close(self) -> None:
        """Hang up."""
        await self._line.close()


def _samples(row: Mapping[str, Any]) -> Iterator[Sample]:
    relays = [relay_of(_dated({**each, "id": UUID(each["id"])}, _OF_RELAY)) for each in _read(row, "relays")]
    lags = {each["name"]: each for each in _read(row, "lags")}
    states = [
        state_of(_dated(each, _OF_SUBSCRIPTION), lags.get(each["name"]), relays)
        for each in _read(row, "subscriptions")
    ]
    parked = {each["name"]: each["deliveries"] for each in _read(row, "parked")}
    yield from _of_relays(relays)
    for state in states:
        yield from _of_subscription(state)
        yield from _of_deliveries(state, parked.get(state.name, 0))
    yield from _of_stranded(stranded_among(_read(row, "kinds"), relays, states))
    yield from _of_all(row, lags[None])
    seconds = [*(each.lag_seconds for each in states), row["oldest_delivery_seconds"], row["unread_seconds"]]
    yield Sample(numbers.OLDEST, {}, max(0.0, *(each for each in seconds if each is not None), 0.0))


def _of_relays(relays: Iterable[Relay]) -> Iterator[Sample]:
    found = [relay.live for relay in relays]
    yield Sample(numbers.RELAYS, {numbers.STATE: "live"}, found.count(True))
    yield Sample(numbers.RELAYS, {numbers.STATE: "gone"}, found.count(False))
    for each in stuck_queues(relays):
        yield Sample(numbers.STUCK, {numbers.DESTINATION: each.queue}, 1)


def _of_subscription(state: SubscriptionState) -> Iterator[Sample]:
    if state.kind is None or state.retired_at is not None:
        return
    labels = {numbers.SUBSCRIPTION: state.name, numbers.KIND: state.kind}
    yield Sample(numbers.LAG, labels, state.lag_events)
    yield Sample(numbers.LAG_TIME, labels, state.lag_seconds or 0.0)
    yield Sample(numbers.CARRIERS, labels, state.carried_by)
    yield Sample(numbers.UNCARRIED, labels, len(state.carried_no_more))
    yield Sample(numbers.STANDING_STILL, labels, state.stands_still is not None)
    yield Sample(numbers.PAUSED, labels, state.paused_at is not None)


def _of_deliveries(state: SubscriptionState, parked: int) -> Iterator[Sample]:
    by_status = {
        "waiting": state.waiting - parked,
        "parked": parked,
        "leased": state.leased,
        "dead": state.dead,
    }
    for status, deliveries in by_status.items():
        yield Sample(
            numbers.DELIVERIES, {numbers.SUBSCRIPTION: state.name, numbers.STATUS: status}, deliveries
        )


def _of_stranded(found: Iterable[Any]) -> Iterator[Sample]:
    by_handler: dict[str, int] = {}
    for each in found:
        by_handler[each.handler] = by_handler.get(each.handler, 0) + each.deliveries
    for handler, deliveries in by_handler.items():
        yield Sample(numbers.STRANDED, {numbers.SUBSCRIPTION: handler}, deliveries)


def _of_all(row: Mapping[str, Any], total: Mapping[str, Any]) -> Iterator[Sample]:
    pending = total["events"] if row["unread"] is None else row["unread"]
    for state, events in (("pending", pending), ("open", total["open"]), ("dead", total["dead"])):
        yield Sample(numbers.BACKLOG, {numbers.STATE: state}, events)
    yield Sample(numbers.ORPHANS, {}, row["orphans"])
    yield Sample(numbers.POSITION, {}, row["position"])


def _read(row: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(row[name])
    return rows


def _dated(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return a row with its moments, which JSON has as text."""
    return {**row, **{name: datetime.fromisoformat(row[name]) for name in names if row[name] is not None}}
