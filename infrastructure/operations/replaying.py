"""Replay: give a handler the past again, in order (R4, R17).

From a position on, its cursors go back: nothing is written for each event, and receipts still keep effects from
happening twice. The relay goes back with what is unsettled ahead of the new place, too (`relay/ownership.py`). Single
events, or those of an aggregate, get deliveries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.operations.finding import has_event
from outbox_kernel.infrastructure.operations.limits import BATCH_MAX, WINDOW_EVENTS
from outbox_kernel.infrastructure.operations.overview import lag_of
from outbox_kernel.infrastructure.operations.selection import NothingFound, no_event
from outbox_kernel.infrastructure.operations.subscriptions import SubscriptionRetired, subscription
from outbox_kernel.infrastructure.outbox.sql.operations import (
    ASKED_FOR,
    FORGET_EFFECTS,
    HIGHEST,
    HOLD_CURSORS,
    REPLAY,
    REWIND,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.infrastructure.operations.selection import AggregateKey


@attrs.frozen
class Rewound:
    """What going back came to."""

    position: int
    """That of the event which comes next."""
    shards: int
    """How many of its cursors go back; the others, as far as is written, have yet to come here."""
    events: int
    """How many events stand before it now."""
    is_at_least: bool
    """Whether there may be more of them: not all was looked at."""
    effects: int
    """How many effects are allowed to happen again."""


@attrs.frozen
class Replayed:
    """What asking for single events came to: those that match, were made due, and that it has yet to come to."""

    matching: int
    due: int
    ahead: int


async def rewind(
    desk: Desk,
    name: str,
    position: int,
    *,
    again: bool = False,
    begin: Callable[[int], Callable[[int], None]] = lambda _: lambda _: None,
) -> Rewound:
    """Have a subscription handle everything from a position on once more, in order."""
    await _require_due(desk, name)
    last: int = (await desk.run_one(HIGHEST))["position"]
    advance = begin(max(0, last - position + 1) if again else 0)

    async def work() -> tuple[int, int]:
        effects = await _forget_effects(desk, name, position, last, advance) if again else 0
        # Last, since relays wait for whoever holds a cursor.
        await desk.run(HOLD_CURSORS, name=name)
        told = await desk.run(REWIND, name=name, position=position)
        return effects, sum(row["goes_back"] for row in told)

    effects, shards = await desk.in_turn(work)
    await desk.wake_relays()
    events, is_at_least = await lag_of(desk, name)
    return Rewound(position, shards, events, is_at_least, effects)


async def _forget_effects(
    desk: Desk, name: str, position: int, last: int, advance: Callable[[int], None]
) -> int:
    effects = 0
    while position <= last:
        row = await desk.run_one(
            FORGET_EFFECTS, name=name, position=position, last=last, events_max=WINDOW_EVENTS
        )
        effects += row["effects"]
        behind = (last if row["last"] is None else row["last"]) + 1
        advance(behind - position)
        position = behind
    return effects


async def replay(
    desk: Desk,
    name: str,
    *,
    event_id: UUID | None = None,
    aggregate: AggregateKey | None = None,
    again: bool = False,
) -> Replayed:
    """Make an event, or those of an aggregate, due by deliveries: all at once, or none.

    What comes later and is not read yet waits behind them. What it has yet to come to, it gets anyway.
    """
    await _require_due(desk, name)
    asked = await desk.run(
        ASKED_FOR,
        name=name,
        event_id=event_id,
        types=await aggregate.types(desk) if aggregate else None,
        ids=aggregate and aggregate.ids,
    )
    if not asked:
        raise await _not_due(desk, name, event_id, aggregate)
    positions = [row["position"] for row in asked if row["is_passed"]]

    async def work() -> int:
        due = 0
        for start in range(0, len(positions), BATCH_MAX):
            batch = positions[start : start + BATCH_MAX]
            due += len(await desk.run(REPLAY, name=name, positions=batch, again=again))
        return due

    due = await desk.in_turn(work)
    if due:
        await desk.wake_relays()
    return Replayed(len(asked), due, len(asked) - len(positions))


async def _not_due(
    desk: Desk, name: str, event_id: UUID | None, aggregate: AggregateKey | None
) -> NothingFound:
    if event_id is None:
        return NothingFound(
            f"{name!r} is not due for an event of aggregate {aggregate}: `outbox events` lists the newest"
        )
    if not await has_event(desk, event_id):
        return no_event(event_id)
    return NothingFound(f"{name!r} is not due for event {event_id}: `outbox show {event_id}` says who is")


async def _require_due(desk: Desk, name: str) -> None:
    if (await subscription(desk, name)).retired_at is not None:
        raise SubscriptionRetired(f"{name!r} is retired: start a relay that carries it, then replay")
