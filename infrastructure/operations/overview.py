"""Status: who relays, what is left to do, and what nobody can do (O1, R2, R9)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.operations.abilities import carried_no_more, relays, stranded
from outbox_kernel.infrastructure.outbox.sql.inspection import BACKLOG, OLDEST, SUBSCRIPTIONS_AND_DELIVERIES
from outbox_kernel.infrastructure.relay.pausing import QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outbox_kernel.infrastructure.operations.abilities import Relay, Stranded
    from outbox_kernel.infrastructure.operations.desk import Desk

Row = dict[str, Any]


@attrs.frozen
class StuckQueue:
    """A queue that a live consumer cannot take from as it should."""

    queue: str
    since: datetime
    host: str
    process_id: int
    reason: str


@attrs.frozen
class Overview:
    """The state of an outbox at a glance."""

    relays: list[Relay]
    backlog: Row
    oldest: Row | None
    subscriptions: list[Row]
    stranded: list[Stranded]
    queues: list[StuckQueue]

    @property
    def live(self) -> list[Relay]:
        """The relays that live."""
        return [relay for relay in self.relays if relay.live]

    @property
    def is_unclaimed(self) -> bool:
        """Whether there are events to claim, and relays that live, but none that claims events."""
        waiting = self.backlog["pending"] + self.backlog["leased"]
        return bool(waiting and self.live) and not any(relay.takes_events for relay in self.live)


async def overview(desk: Desk) -> Overview:
    """Look at the whole outbox; the cost goes with what is unsettled, not with what is stored."""
    found = await relays(desk)
    subscriptions = [dict(row) for row in await desk.fetch(SUBSCRIPTIONS_AND_DELIVERIES)]
    for each in subscriptions:
        each["carried_by"] = sum(relay.live and each["name"] in relay.abilities for relay in found)
        told = [relay.pauses[each["name"]] for relay in found if relay.live and each["name"] in relay.pauses]
        patterns = () if each["retired_at"] else each["patterns"] or ()
        each["carried_no_more"] = carried_no_more(found, each["name"], patterns)
        each["broker_away"] = min(told, key=lambda pause: pause["since"])["reason"] if told else None
    oldest = await desk.fetch(OLDEST, desk.now)
    return Overview(
        relays=found,
        backlog=dict(await desk.fetch_one(BACKLOG)),
        oldest=dict(oldest[0]) if oldest else None,
        subscriptions=subscriptions,
        stranded=await stranded(desk, found, subscriptions),
        queues=_stuck_queues(found),
    )


def _stuck_queues(found: Iterable[Relay]) -> list[StuckQueue]:
    """Return what consumers tell of their queues, in the order of the names."""
    told = [
        StuckQueue(
            name.removeprefix(QUEUE),
            datetime.fromisoformat(pause["since"]),
            relay.host,
            relay.process_id,
            pause["reason"],
        )
        for relay in found
        if relay.live
        for name, pause in relay.pauses.items()
        if name.startswith(QUEUE)
    ]
    return sorted(told, key=lambda each: (each.queue, each.since))
