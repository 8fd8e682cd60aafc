"""Retry and skip: what an operator does about deliveries that do not get on by themselves (R4, R6, R7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.operations.abilities import relays
from outbox_kernel.infrastructure.operations.limits import BATCH_MAX
from outbox_kernel.infrastructure.operations.selection import NothingFound, no_event, no_subscription
from outbox_kernel.infrastructure.outbox.sql.inspection import DELIVERIES_OF, EVENT, SUBSCRIPTIONS_OF
from outbox_kernel.infrastructure.outbox.sql.operations import (
    CHOOSE_DELIVERIES,
    LOCK_DELIVERIES,
    RETRY,
    RETRY_AGAIN,
    SKIP,
    SKIP_AHEAD,
    SUBSCRIPTION_NAMES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.infrastructure.operations.selection import Selection
    from outbox_kernel.infrastructure.outbox.sql.named import Statement

AHEAD = "pending"
"""What is chosen without a delivery: the handler has not come to the event yet."""


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
    chosen = await _choose(desk, selection, statuses)
    if not chosen:
        await _tell_why_nothing(desk, selection)
    return chosen


async def choose_for_skip(desk: Desk, selection: Selection, *, all_waiting: bool = False) -> list[Chosen]:
    """Choose what failed. Of one event all that is unsettled; in bulk what merely waits only when asked for.

    Of one event and one handler, that it has not come to yet, too: then it is skipped at its turn.
    """
    one = selection.event_id is not None
    statuses = ["dead", *(["waiting"] if one or all_waiting else []), *(["leased"] if one else [])]
    chosen = await _choose(desk, selection, statuses) or await _choose_ahead(desk, selection)
    if not chosen:
        await _tell_why_nothing(desk, selection, is_skip=True)
    if any(each.status == "leased" for each in chosen):
        await _require_given_up(desk, chosen[0].event_id, {each.handler for each in chosen})
    return chosen


async def _choose_ahead(desk: Desk, selection: Selection) -> list[Chosen]:
    if selection.event_id is None or selection.handler is None:
        return []
    due = await desk.run(SUBSCRIPTIONS_OF, event_id=selection.event_id)
    return [
        Chosen(row["position"], selection.event_id, row["name"], AHEAD)
        for row in due
        if row["name"] == selection.handler and not row["is_passed"]
    ]


async def _require_given_up(desk: Desk, event_id: UUID, handlers: set[str]) -> None:
    """Refuse what a relay has in its hands; what a relay had that is no more is nobody's."""
    live = {(relay.id, relay.epoch) for relay in await relays(desk) if relay.live}
    for row in await desk.run(DELIVERIES_OF, event_ids=[event_id]):
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
    statement = SKIP_AHEAD if chosen and chosen[0].status == AHEAD else SKIP
    return await _in_batches(desk, list(reversed(chosen)), statement, advance)


async def _choose(desk: Desk, selection: Selection, statuses: Sequence[str]) -> list[Chosen]:
    rows = await desk.run(CHOOSE_DELIVERIES, **await selection.arguments(desk), statuses=statuses)
    return [Chosen(*row) for row in rows]


async def _tell_why_nothing(desk: Desk, selection: Selection, *, is_skip: bool = False) -> None:
    """Raise NothingFound where what is named is not there; of a name that has nothing to mend, say nothing."""
    if selection.event_id is not None:
        raise await _nothing_of(desk, selection.event_id, selection.handler, is_skip=is_skip)
    if selection.handler is not None:
        names = [row[0] for row in await desk.run(SUBSCRIPTION_NAMES)]
        if selection.handler not in names:
            raise no_subscription(selection.handler, names)


async def _nothing_of(desk: Desk, event: UUID, handler: str | None, *, is_skip: bool) -> NothingFound:
    found = await desk.run(EVENT, event_id=event, position=None)
    if not found:
        return no_event(event)
    rows = await desk.run(DELIVERIES_OF, event_ids=[event])
    deliveries, status = [row["handler"] for row in rows], found[0]["status"]
    if handler is not None and handler not in deliveries:
        known = f" (those of {', '.join(deliveries)} are)" if deliveries else ""
        return NothingFound(
            f"no delivery of event {event} to {handler!r} is on record{known}: "
            f"the event is {status}, `outbox show {event}` tells more"
        )
    remedy = f"`outbox show {event}` says what it waits for"
    if status == "delivered":
        remedy = "`outbox replay` runs a handler again"
    elif is_skip:
        remedy = (
            f"`outbox skip {event} --handler NAME` is for a handler that has yet to come to it, and "
            f"`outbox show {event}` names those"
        )
    return NothingFound(f"nothing of event {event} has failed, it is {status}: {remedy}")


async def _in_batches(
    desk: Desk, chosen: Sequence[Chosen], statement: Statement, advance: Callable[[int], None]
) -> Change:
    changed = 0
    for start in range(0, len(chosen), BATCH_MAX):
        batch = chosen[start : start + BATCH_MAX]
        changed += await change(desk, batch, statement)
        advance(len(batch))
    if changed:
        await desk.wake_relays()
    return Change(len(chosen), changed)


async def change(desk: Desk, batch: Sequence[Chosen], statement: Statement) -> int:
    """Change some deliveries, in one transaction; return how many."""
    keys = {"event_ids": [each.event_id for each in batch], "handlers": [each.handler for each in batch]}

    async def work() -> int:
        await desk.run(LOCK_DELIVERIES, **keys)
        return len(await desk.run(statement, **keys))

    return await desk.in_turn(work)
