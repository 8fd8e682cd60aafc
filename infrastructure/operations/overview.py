"""Status: who relays, what is left to do, and what nobody can do (O1, R2, R9)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.operations.abilities import carried_no_more, relays, stranded
from outbox_kernel.infrastructure.operations.limits import COUNT_BYTES_MAX, LAG_EVENTS_MAX
from outbox_kernel.infrastructure.outbox.sql.standing import (
    EVENTS_THERE_ARE,
    FIRST,
    LAG,
    OLDEST,
    SUBSCRIPTIONS_AND_DELIVERIES,
)
from outbox_kernel.infrastructure.relay.outages import QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outbox_kernel.infrastructure.operations.abilities import Relay, Stranded
    from outbox_kernel.infrastructure.operations.desk import Desk


@attrs.frozen
class Backlog:
    """How many events are where; each is counted once, for the first of these that it is."""

    pending: int
    """Somebody has yet to come to them."""
    pending_is_at_least: bool
    """Whether there may be more of them: not all was looked at."""
    open: int
    """They have a delivery that is to be run."""
    dead: int
    """They have a dead one."""
    delivered: int | None
    """None where it is not known how many are pending."""
    delivered_is_estimated: bool


@attrs.frozen
class Undelivered:
    """The oldest event that is not delivered."""

    position: int
    event_id: Any
    event_type: str
    created_at: datetime
    status: str
    age_seconds: float


@attrs.frozen
class SubscriptionState:
    """A subscription, or a name that has deliveries and never was one."""

    name: str
    kind: str | None
    patterns: list[str] | None
    source: str | None
    """The queue whose events it is for; None: those written here."""
    ordered: bool | None
    since: datetime | None
    paused_at: datetime | None
    retired_at: datetime | None
    waiting: int
    """Deliveries, as are the next two."""
    leased: int
    dead: int
    lag_events: int
    """Events behind its cursors."""
    lag_is_at_least: bool
    """Whether there may be more of them: not all was looked at."""
    lag_seconds: float | None
    """Since when the oldest of them stands there."""
    carried_by: int
    """Live relays."""
    carried_no_more: list[str]
    """Its patterns that no live relay of its name carries."""
    stands_still: str | None
    """Why, as the relay says that waits for its broker, or for what its handler needs."""

    @property
    def is_unread(self) -> bool:
        """Whether events stand behind its cursors, and no live relay reads on for it."""
        return bool(self.lag_events and not self.carried_by)


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
    backlog: Backlog
    oldest: Undelivered | None
    subscriptions: list[SubscriptionState]
    stranded: list[Stranded]
    queues: list[StuckQueue]

    @property
    def live(self) -> list[Relay]:
        """The relays that live."""
        return [relay for relay in self.relays if relay.live]

    @property
    def unread(self) -> list[SubscriptionState]:
        """The subscriptions that events stand behind, and no live relay reads on for."""
        return [each for each in self.subscriptions if each.is_unread]


async def overview(desk: Desk) -> Overview:
    """Look at the whole outbox; the cost goes with what is unsettled, not with what is stored."""
    found = await relays(desk)
    *lags, total = await desk.run(LAG, name=None, look_max=LAG_EVENTS_MAX)
    by_name = {row["name"]: row for row in lags}
    rows = await desk.run(SUBSCRIPTIONS_AND_DELIVERIES)
    is_read = any(row["kind"] is not None for row in rows)
    subscriptions = [state_of(row, by_name.get(row["name"]), found) for row in rows]
    return Overview(
        relays=found,
        backlog=await (_backlog(desk, lags, total) if is_read else _backlog_of_all(desk)),
        oldest=await _oldest(desk, [row["position"] for row in lags] if is_read else [await _first(desk)]),
        subscriptions=subscriptions,
        stranded=await stranded(desk, found, subscriptions),
        queues=stuck_queues(found),
    )


async def lag_of(desk: Desk, name: str) -> tuple[int, bool]:
    """Return how many events stand behind a subscription, and whether there may be more."""
    *lags, _ = await desk.run(LAG, name=name, look_max=LAG_EVENTS_MAX)
    return (lags[0]["events"], lags[0]["is_at_least"]) if lags else (0, False)


def state_of(
    row: Mapping[str, Any], lag: Mapping[str, Any] | None, found: Iterable[Relay]
) -> SubscriptionState:
    """Return how a subscription stands, from its row, what stands behind it, and the relays there are."""
    name, live = row["name"], [relay for relay in found if relay.live]
    told = [relay.pauses[name] for relay in live if name in relay.pauses]
    return SubscriptionState(
        **row,
        lag_events=lag["events"] if lag else 0,
        lag_is_at_least=bool(lag and lag["is_at_least"]),
        lag_seconds=lag["seconds"] if lag else None,
        carried_by=sum(name in relay.abilities for relay in live),
        carried_no_more=carried_no_more(live, name, () if row["retired_at"] else row["patterns"] or ()),
        stands_still=min(told, key=lambda pause: pause["since"])["reason"] if told else None,
    )


async def _backlog(desk: Desk, lags: Iterable[Mapping[str, Any]], total: Mapping[str, Any]) -> Backlog:
    there_are = await desk.run_one(EVENTS_THERE_ARE, count_bytes_max=COUNT_BYTES_MAX)
    is_at_least = any(row["is_at_least"] for row in lags)
    undelivered = total["events"] + total["open"] + total["dead"]
    return Backlog(
        pending=total["events"],
        pending_is_at_least=is_at_least,
        open=total["open"],
        dead=total["dead"],
        delivered=None if is_at_least else max(0, there_are["events"] - undelivered),
        delivered_is_estimated=there_are["is_estimated"],
    )


async def _backlog_of_all(desk: Desk) -> Backlog:
    """Return the backlog of an outbox to which nobody has subscribed yet: whoever is the first gets all of it."""
    there_are = await desk.run_one(EVENTS_THERE_ARE, count_bytes_max=COUNT_BYTES_MAX)
    return Backlog(
        pending=there_are["events"],
        pending_is_at_least=False,
        open=0,
        dead=0,
        delivered=0,
        delivered_is_estimated=there_are["is_estimated"],
    )


async def _first(desk: Desk) -> int | None:
    position: int | None = (await desk.run_one(FIRST))["position"]
    return position


async def _oldest(desk: Desk, behind: Iterable[int | None]) -> Undelivered | None:
    position = min((each for each in behind if each is not None), default=None)
    rows = await desk.run(OLDEST, position=position)
    return Undelivered(**rows[0]) if rows else None


def stuck_queues(found: Iterable[Relay]) -> list[StuckQueue]:
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
