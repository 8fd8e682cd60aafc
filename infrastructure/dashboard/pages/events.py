"""Events: looked for, and one's whole story."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import attrs

from outbox_kernel.infrastructure.dashboard.operator import Right
from outbox_kernel.infrastructure.dashboard.pages.limits import POSITION_DIGITS_MAX
from outbox_kernel.infrastructure.dashboard.paging import FIELD, place_of
from outbox_kernel.infrastructure.dashboard.security import Refused
from outbox_kernel.infrastructure.operations.abilities import relays, types_known
from outbox_kernel.infrastructure.operations.lineage import lineage
from outbox_kernel.infrastructure.operations.searching import Query
from outbox_kernel.infrastructure.operations.searching import search as searched
from outbox_kernel.infrastructure.operations.selection import AggregateKey, Moment
from outbox_kernel.infrastructure.operations.stories import show
from outbox_kernel.infrastructure.operations.waits import TURN
from outbox_kernel.infrastructure.outbox.views import EVENT_STATES

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.visit import Visit
    from outbox_kernel.infrastructure.operations.stories import Delivery, Story

T = TypeVar("T")

FIELDS = ("type", "aggregate", "state", "text", "since", "until")


async def search(visit: Visit) -> Response:
    """Show the events that are looked for, the newest first."""
    said = {name: visit.asked(name) for name in FIELDS}
    if said["text"] and not visit.may(Right.PAYLOAD):
        raise Refused(403, f"{visit.operator.who} has no right to look into payloads", "right payload")
    query, wrong = _query(said)
    place = place_of(visit.request)
    async with visit.board.looking() as desk:
        found = None if wrong else await searched(desk, query, place[0] if place else None)
        types = types_known(await relays(desk))
        now = await desk.clock()
    return visit.page(
        "events.html",
        now,
        said=said,
        wrong=wrong,
        found=found,
        asks=query.asks,
        is_first=place is None,
        missed=visit.asked("missed"),
        states=EVENT_STATES,
        types=types,
        from_field=FIELD,
    )


def _query(said: dict[str, str | None]) -> tuple[Query, dict[str, str]]:
    """Read what is looked for; what cannot be read is told beside its field."""
    wrong: dict[str, str] = {}
    moment = "write 2026-01-31, 2026-01-31T12:00+01:00, or an age such as 90m, 24h, 7d"
    if said["state"] and said["state"] not in EVENT_STATES:
        wrong["state"] = f"choose from {', '.join(EVENT_STATES)}"
    query = Query(
        event_type=said["type"],
        words=said["text"],
        status=None if "state" in wrong else said["state"],
        aggregate=_read(said, "aggregate", AggregateKey.parse, wrong, "write TYPE:ID, or ID"),
        since=_read(said, "since", Moment.parse, wrong, moment),
        until=_read(said, "until", Moment.parse, wrong, moment),
    )
    return query, wrong


def _read(
    said: dict[str, str | None], name: str, parse: Callable[[str], T], wrong: dict[str, str], remedy: str
) -> T | None:
    text = said[name]
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError:
        wrong[name] = remedy
        return None


async def story(visit: Visit) -> Response:
    """Show one event: what it says, who has handled it, what it comes from and has led to."""
    event = event_of(visit.request.path_params["event"])
    if event is None:
        raise Refused(404, "that is no event's id or position: look for it among the events", "page")
    async with visit.board.looking() as desk:
        told = await show(desk, event)
        kin = await lineage(desk, told.event_id)
        now = await desk.clock()
    due = due_of(told)
    headers = told.headers if isinstance(told.headers, dict) else {"headers": told.headers}
    return visit.page(
        "event.html",
        now,
        event=told,
        due=due,
        may_retry=visit.may(Right.RETRY) and any(each.may_retry for each in due),
        context=sorted(headers.items()),
        kin=kin,
        may_see=visit.may(Right.PAYLOAD),
    )


@attrs.frozen
class Due:
    """How far one is with an event, subscribed to it or not."""

    name: str
    state: str
    is_subscribed: bool
    at: datetime | None
    attempts: int | None = None
    waits_for: str | None = None
    held_by: str | None = None
    error_message: str | None = None
    alone: bool = False
    is_let_go: bool = False
    """Whether it is to be skipped once a relay comes to it."""

    @property
    def may_retry(self) -> bool:
        """Whether to retry it could do anything: not for what has had no attempt yet, or stands behind another."""
        if self.state == "waiting":
            return self.is_let_go or bool(self.attempts and not self.is_behind)
        return self.state in ("dead", "skipped")

    @property
    def is_behind(self) -> bool:
        """Whether it waits for another event, which is named."""
        return (self.waits_for or "").startswith(TURN)


def due_of(story: Story) -> list[Due]:
    """Put what is subscribed and what has a delivery into one list: one does not go without the other for long."""
    deliveries = {each.handler: each for each in story.deliveries}
    found = [
        _due(each.name, each.state, deliveries.pop(each.name, None), each.passed_at, each.waits_for)
        for each in story.subscriptions
    ]
    left = [
        attrs.evolve(_due(name, each.status, each, None, each.waits_for), is_subscribed=False)
        for name, each in deliveries.items()
    ]
    let_go = {each.handler for each in story.receipts if each.outcome == "skipped"}
    return [attrs.evolve(each, is_let_go=each.name in let_go) for each in (*found, *left)]


def _due(
    name: str, state: str, delivery: Delivery | None, passed_at: datetime | None, waits_for: str | None
) -> Due:
    # What is to be typed at a terminal stands beside it as a button.
    waits_for = waits_for and waits_for.partition(": `outbox")[0]
    if state == "dead":
        waits_for = "you: mend the cause and retry it, or skip it"
    if delivery is None:
        return Due(name, state, is_subscribed=True, at=passed_at, waits_for=waits_for)
    return Due(
        name,
        state,
        is_subscribed=True,
        at=delivery.updated_at,
        attempts=delivery.attempts,
        waits_for=waits_for,
        held_by=delivery.held_by,
        error_message=delivery.error_message,
        alone=delivery.alone,
    )


def event_of(text: str) -> UUID | int | None:
    """Read an event's id or its position."""
    if text.isascii() and text.isdecimal() and len(text) <= POSITION_DIGITS_MAX:
        return int(text)
    with suppress(ValueError):
        return UUID(text)
    return None
