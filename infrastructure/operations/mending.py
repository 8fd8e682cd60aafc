"""Retry and skip: what an operator does about deliveries that do not get on by themselves (R4, R6, R7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.operations.abilities import relays
from outbox_kernel.infrastructure.operations.selection import NothingFound, no_subscription
from outbox_kernel.infrastructure.outbox.sql.inspection import DELIVERIES_OF, EVENT
from outbox_kernel.infrastructure.outbox.sql.operations import (
    CHOOSE_DELIVERIES,
    LOCK_DELIVERIES,
    RECOUNT_EVENTS,
    RETRY,
    RETRY_AGAIN,
    SKIP,
    SUBSCRIPTION_NAMES,
)
from outbox_kernel.infrastructure.outbox.sql.outcomes import LOCK_EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.infrastructure.operations.selection import Selection

# Relays that settle one of these events wait for us meanwhile.
BATCH_MAX = 500


class BeingHandled(InfrastructureError):
    """A relay has the delivery in its hands, and what it comes to is not ours to say."""


class HalfDone(InfrastructureError):
    """A delivery is dead of a second commit: another run would meet the receipt of the first, and count as done."""

    def __init__(self, handler: str, event_id: UUID) -> None:
        self.handler, self.event_id = handler, event_id
        super().__init__(
            f"{handler} has committed a first effect of event {event_id} and no second one: mend the handler, then "
            "`outbox retry --again` lets it run, its first effect a second time too; `outbox skip` leaves it at that"
        )


@attrs.frozen
class Chosen:
    """A delivery that was chosen."""

    position: int
    event_id: UUID
    handler: str
    status: str
    half_done: bool = False
    """Whether it is dead of a second commit, and the first one is there."""


@attrs.frozen
class Change:
    """What was asked for, and what it came to."""

    chosen: int
    changed: int
    half_done: int = 0
    """How many were left because their first effect would happen again."""

    @property
    def left(self) -> int:
        """How many had gone on meanwhile: they succeeded, or a relay has them in its hands."""
        return self.chosen - self.changed - self.half_done


async def choose_for_retry(desk: Desk, selection: Selection, *, skipped: bool = False) -> list[Chosen]:
    """Choose what failed. Of one event what was skipped too; in bulk only when asked for."""
    statuses = ["dead"]
    if skipped or selection.event_id is not None:
        statuses.append("skipped")
    return await _choose(desk, selection, statuses)


async def choose_for_skip(desk: Desk, selection: Selection, *, all_waiting: bool = False) -> list[Chosen]:
    """Choose what failed. Of one event all that is unsettled; in bulk what merely waits only when asked for."""
    one = selection.event_id is not None
    statuses = ["dead", *(["waiting"] if one or all_waiting else []), *(["leased"] if one else [])]
    chosen = await _choose(desk, selection, statuses)
    if any(each.status == "leased" for each in chosen):
        await _require_given_up(desk, chosen[0].event_id, {each.handler for each in chosen})
    return chosen


async def _require_given_up(desk: Desk, event_id: UUID, handlers: set[str]) -> None:
    """Refuse what a relay has in its hands; what a relay had that is no more is nobody's."""
    live = {(relay.id, relay.epoch) for relay in await relays(desk) if relay.live}
    for row in await desk.fetch(DELIVERIES_OF, [event_id]):
        if row["handler"] in handlers and (row["lease_relay"], row["lease_epoch"]) in live:
            raise BeingHandled(
                f"{row['handler']} is handling event {event_id} right now: wait until that run has ended "
                "(`outbox show` tells), then skip what is left"
            )


async def retry(
    desk: Desk,
    chosen: Sequence[Chosen],
    advance: Callable[[int], None] = lambda _: None,
    *,
    again: bool = False,
) -> Change:
    """Let deliveries run again as if they had never failed or been skipped, the earliest first.

    What is half done is left, or has its first effect `again`.
    """
    if again:
        return await _in_batches(desk, chosen, RETRY_AGAIN, advance)
    half_done = [each for each in chosen if each.half_done]
    if half_done and len(half_done) == len(chosen):
        raise HalfDone(half_done[0].handler, half_done[0].event_id)
    change = await _in_batches(desk, chosen, RETRY, advance)
    return attrs.evolve(change, half_done=len(half_done))


async def skip(
    desk: Desk, chosen: Sequence[Chosen], advance: Callable[[int], None] = lambda _: None
) -> Change:
    """Let deliveries go without an effect; the last first, so that none gets its turn while others are skipped."""
    return await _in_batches(desk, list(reversed(chosen)), SKIP, advance)


async def _choose(desk: Desk, selection: Selection, statuses: Sequence[str]) -> list[Chosen]:
    rows = await desk.fetch(CHOOSE_DELIVERIES, *await selection.arguments(desk), statuses, True)  # noqa: FBT003
    if not rows and selection.event_id is not None:
        raise NothingFound(await _why_nothing(desk, selection))
    if not rows and selection.handler is not None:
        await _require_known(desk, selection.handler)
    return [Chosen(*row) for row in rows]


async def _require_known(desk: Desk, handler: str) -> None:
    """Tell a name that was mistyped from one that has nothing to mend."""
    names = [row[0] for row in await desk.fetch(SUBSCRIPTION_NAMES)]
    if handler not in names:
        raise no_subscription(handler, names)


async def _why_nothing(desk: Desk, selection: Selection) -> str:
    event = await desk.fetch(EVENT, selection.event_id)
    if not event:
        return f"there is no event {selection.event_id}: `outbox events` lists the newest"
    deliveries = {
        row["handler"]: row["status"] for row in await desk.fetch(DELIVERIES_OF, [selection.event_id])
    }
    if selection.handler is not None and selection.handler not in deliveries:
        known = f" (those of {', '.join(deliveries)} are)" if deliveries else ""
        return (
            f"no delivery of event {selection.event_id} to {selection.handler!r} is on record{known}: "
            f"the event is {event[0]['status']}, `outbox show {selection.event_id}` tells more"
        )
    status = event[0]["status"]
    remedy = (
        "`outbox replay` runs a handler again"
        if status == "delivered"
        else f"`outbox show {selection.event_id}` says what it waits for"
    )
    return f"nothing of event {selection.event_id} has failed, it is {status}: {remedy}"


async def _in_batches(
    desk: Desk, chosen: Sequence[Chosen], statement: str, advance: Callable[[int], None]
) -> Change:
    changed = 0
    for start in range(0, len(chosen), BATCH_MAX):
        batch = chosen[start : start + BATCH_MAX]
        changed += await change(desk, batch, statement)
        advance(len(batch))
    if changed:
        await desk.wake_relays()
    return Change(len(chosen), changed)


async def change(desk: Desk, batch: Sequence[Chosen], statement: str) -> int:
    """Change some deliveries and what that makes of their events, in one transaction; return how many."""
    positions = sorted({each.position for each in batch})
    keys = [each.event_id for each in batch], [each.handler for each in batch]

    async def work() -> int:
        await desk.fetch(LOCK_EVENTS, positions)
        await desk.fetch(LOCK_DELIVERIES, *keys)
        rows = await desk.fetch(statement, *keys, desk.now)
        await desk.fetch(RECOUNT_EVENTS, positions, desk.now)
        return len(rows)

    return await desk.in_turn(work)
