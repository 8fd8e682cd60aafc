"""Replay: give a handler the past, in order (R4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.operations.mending import BATCH_MAX
from outbox_kernel.infrastructure.operations.selection import type_pattern
from outbox_kernel.infrastructure.operations.subscriptions import SubscriptionRetired, subscription
from outbox_kernel.infrastructure.outbox.sql.operations import (
    ARRANGE,
    BOUNDS,
    PAST_EVENTS,
    RECOUNT_EVENTS,
    REPLAY,
)
from outbox_kernel.infrastructure.outbox.sql.outcomes import LOCK_EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.infrastructure.operations.subscriptions import Subscription

WINDOW_EVENTS = 5_000
_SETTLED = ("delivered", "dead")


@attrs.frozen
class Replayed:
    """What a replay came to: events seen that match, made due, and left to the relays that are at them."""

    matching: int
    due: int
    in_flight: int


async def replay(
    desk: Desk,
    name: str,
    since: datetime,
    *,
    again: bool = False,
    begin: Callable[[int], Callable[[int], None]] = lambda _: lambda _: None,
) -> Replayed:
    """Make past events due for a handler: all of them at once, or none.

    In one transaction, or an aggregate's next event could be handled before its past is complete. Relays never
    wait for what that holds: events that they may be settling come last.
    """
    found = await subscription(desk, name)
    if found.retired_at is not None:
        raise SubscriptionRetired(f"{name!r} is retired: start a relay that carries it, then replay")
    bounds = await desk.fetch_one(BOUNDS)
    advance = begin(bounds["last"] - bounds["first"] + 1 if bounds["last"] else 0)

    async def work() -> Replayed:
        return await _walk(desk, found, since, again, bounds["first"] - 1, bounds["last"], advance)

    replayed = await desk.in_turn(work)
    if replayed.due:
        await desk.wake_relays()
    return replayed


async def _walk(
    desk: Desk,
    handler: Subscription,
    since: datetime,
    again: bool,  # noqa: FBT001 - as the operator said
    after: int,
    upto: int,
    advance: Callable[[int], None],
) -> Replayed:
    pattern, matching, in_flight = type_pattern(handler.patterns), 0, 0
    of_queues = type_pattern(handler.types_of_queues) if handler.is_for_queues else None
    unsettled: list[int] = []
    due: list[int] = []
    while after < upto:
        *rows, (last, _) = await desk.fetch(
            *(PAST_EVENTS, pattern, since, after, upto, WINDOW_EVENTS, handler.name, of_queues)
        )
        matching += len(rows)
        settled = [row["position"] for row in rows if row["status"] in _SETTLED]
        unsettled += [row["position"] for row in rows if row["status"] == "open"]
        in_flight += sum(row["status"] in ("pending", "leased") for row in rows)
        due += await _make_due(desk, handler, settled, again=again)
        last = upto if last is None else last
        advance(last - after)
        after = last
    due += await _make_due(desk, handler, unsettled, again=again)
    if handler.ordered and handler.is_for_queues:
        await desk.fetch(ARRANGE, handler.name, due)
    return Replayed(matching, len(due), in_flight)


async def _make_due(desk: Desk, handler: Subscription, positions: Sequence[int], *, again: bool) -> list[int]:
    due: list[int] = []
    for start in range(0, len(positions), BATCH_MAX):
        batch = positions[start : start + BATCH_MAX]
        await desk.fetch(LOCK_EVENTS, batch)
        rows = await desk.fetch(REPLAY, handler.name, handler.ordered, batch, again, desk.now)
        changed = [row["position"] for row in rows]
        await desk.fetch(RECOUNT_EVENTS, changed, desk.now)
        due += changed
    return due
