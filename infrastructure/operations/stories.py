"""Events for people to look at: lists, one event's whole story, an aggregate's history (O1, K11)."""

from __future__ import annotations

import contextlib
import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

from outbox_kernel.infrastructure.discovery import context_packages
from outbox_kernel.infrastructure.operations.abilities import relays, why_not
from outbox_kernel.infrastructure.operations.selection import NothingFound, type_pattern
from outbox_kernel.infrastructure.operations.subscriptions import subscription
from outbox_kernel.infrastructure.outbox.sql.inspection import (
    DELIVERIES_OF,
    EARLIER_DELIVERY,
    EARLIER_EVENT,
    EVENT,
    EVENT_AT,
    EVENTS,
    FAILED,
    HISTORY,
    RECEIPTS,
)
from outbox_kernel.kernel import masked_payload
from outbox_kernel.kernel.errors import UnknownEventType
from outbox_kernel.kernel.wire.records import MASK

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.infrastructure.operations.abilities import Relay
    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.infrastructure.operations.overview import Row
    from outbox_kernel.infrastructure.operations.selection import AggregateKey, Moment
    from outbox_kernel.infrastructure.settings import Settings

UNREADABLE = f"{MASK} (no object of fields, so it is masked as a whole)"
# Of what Python reads as a number; the longer ones stay text.
DIGITS_MAX = 1_000
# In every payload, and secret in none.
_PLAIN_KEYS = ("event_id", "occurred_at", "eventId", "occurredOn", "eventVersion")


def know_events(settings: Settings) -> None:
    """Define the contexts' events as far as their modules can be imported, so that payloads can be masked by field."""
    for package in context_packages(settings):
        for room in ("events", "handlers", "wiring"):
            # What does not import here costs only detail: its payloads are masked as a whole.
            with contextlib.suppress(Exception):
                import_module(f"{package}.{room}")


def presentable(event_type: str, payload: object) -> tuple[dict[str, Any] | str, bool]:
    """Return the payload without its secrets, and whether its class is known; if not, every value may be one."""
    if not isinstance(payload, dict):
        return UNREADABLE, True
    try:
        return masked_payload(event_type, payload), True
    except UnknownEventType:
        return {key: value if key in _PLAIN_KEYS else MASK for key, value in payload.items()}, False


async def events(
    desk: Desk,
    *,
    event_type: str | None = None,
    aggregate: AggregateKey | None = None,
    status: str | None = None,
    since: Moment | None = None,
    limit: int = 20,
) -> list[Row]:
    """List events, the newest first."""
    rows = await desk.fetch(
        EVENTS,
        type_pattern([event_type]) if event_type else None,
        await aggregate.types(desk) if aggregate else None,
        aggregate and aggregate.ids,
        status,
        await since.resolved(desk) if since else None,
        limit,
    )
    return [dict(row) for row in rows]


async def failed(desk: Desk, limit: int) -> list[Row]:
    """List what is dead or waits for another attempt, the oldest event first."""
    return [dict(row) for row in await desk.fetch(FAILED, limit)]


async def history(desk: Desk, aggregate: AggregateKey) -> list[Row]:
    """Tell all events of an aggregate, with the deliveries of each."""
    rows = [dict(row) for row in await desk.fetch(HISTORY, await aggregate.types(desk), aggregate.ids)]
    if not rows:
        raise NothingFound(
            f"the outbox has no event of aggregate {aggregate}: `outbox events` lists the newest"
        )
    deliveries: dict[UUID, list[Row]] = {}
    for row in await desk.fetch(DELIVERIES_OF, [row["event_id"] for row in rows]):
        deliveries.setdefault(row["event_id"], []).append(dict(row))
    return [{**_decoded(row), "deliveries": deliveries.get(row["event_id"], [])} for row in rows]


async def show(desk: Desk, event_id: UUID | int) -> Row:
    """Tell the whole story of one event, by its id or its position, and what it waits for."""
    rows = await desk.fetch(EVENT_AT if isinstance(event_id, int) else EVENT, event_id)
    if not rows:
        raise NothingFound(f"there is no event {event_id}: `outbox events` lists the newest")
    event_id = rows[0]["event_id"]
    event, found, now = _decoded(dict(rows[0])), await relays(desk), await desk.clock()
    event["held_by"] = _holder(event, found)
    event["waits_for"] = await _wait_of_event(desk, event, found, now)
    event["deliveries"] = [dict(row) for row in await desk.fetch(DELIVERIES_OF, [event_id])]
    for delivery in event["deliveries"]:
        delivery["held_by"] = _holder(delivery, found)
        delivery["waits_for"] = await _wait_of_delivery(desk, event, delivery, found, now)
    event["receipts"] = [dict(row) for row in await desk.fetch(RECEIPTS, [event_id])]
    return event


def _decoded(row: Row) -> Row:
    payload, known = presentable(row["event_type"], _read(row["payload"]))
    return {**row, "payload": payload, "class_known": known, "headers": _read(row["headers"])}


def _read(text: str) -> object:
    """Read JSON as PostgreSQL stores it, which bounds neither numbers nor depth as Python does."""
    try:
        return json.loads(text, parse_int=_number)
    except RecursionError:
        return UNREADABLE


def _number(digits: str) -> int | str:
    return int(digits) if len(digits) <= DIGITS_MAX else digits


def _holder(row: Row, found: Iterable[Relay]) -> str | None:
    if row["lease_relay"] is None:
        return None
    for relay in found:
        if (relay.id, relay.epoch) == (row["lease_relay"], row["lease_epoch"]):
            return f"{relay.host}, process {relay.process_id}" + (
                "" if relay.live else ", whose lease has run out"
            )
    return "a relay that is gone: a live one takes it over"


async def _wait_of_event(desk: Desk, event: Row, found: Iterable[Relay], now: datetime) -> str | None:
    if event["status"] != "pending":
        return None
    if not any(relay.live for relay in found):
        return "a relay: none lives"
    if event["available_at"] > now:
        return f"its time, {event['available_at']:%Y-%m-%d %H:%M:%S %Z}"
    if event["not_before"] is not None:
        return "the next claim"
    where = (event["aggregate_type"], event["aggregate_id"], event["position"])
    for earlier in await desk.fetch(EARLIER_EVENT, *where):
        return f"its turn: event {earlier['event_id']} of its aggregate is {earlier['status']}"
    return "the next claim"


async def _wait_of_delivery(
    desk: Desk, event: Row, delivery: Row, found: Iterable[Relay], now: datetime
) -> str | None:
    if delivery["status"] == "dead":
        return "an operator: `outbox retry` or `outbox skip`"
    if delivery["status"] != "waiting":
        return None
    where = (delivery["order_key"], delivery["handler"], delivery["position"])
    for earlier in await desk.fetch(EARLIER_DELIVERY, *where):
        return f"its turn: event {earlier['event_id']} is {earlier['status']} for this handler"
    abilities = [relay.abilities for relay in found if relay.live]
    if reason := why_not(abilities, delivery["handler"], event["event_type"], event["event_version"]):
        return f"a relay: {reason}"
    return await _wait_for_time(desk, delivery, now)


async def _wait_for_time(desk: Desk, delivery: Row, now: datetime) -> str:
    with contextlib.suppress(NothingFound):
        if (await subscription(desk, delivery["handler"])).paused_at is not None:
            return "an operator: its handler is paused, `outbox resume`"
    if delivery["available_at"] > now:
        what = "its next attempt" if delivery["attempts"] else "its time"
        return f"{what}, {delivery['available_at']:%Y-%m-%d %H:%M:%S %Z}"
    return "the next claim"
