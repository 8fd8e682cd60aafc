"""The outbox at a glance: each subscription with what stands behind it, at a cost that does not grow with it (O3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.operations.abilities import (
    NOT_FOR_TYPE,
    RETIRED,
    Stranded,
    carried_no_more,
    relays,
    why_not,
)
from outbox_kernel.infrastructure.operations.dead_letters import counts
from outbox_kernel.infrastructure.operations.limits import (
    COUNT_BYTES_MAX,
    DELIVERIES_MAX,
    GLANCE_LAG_EVENTS_MAX,
    KINDS_DELIVERIES_MAX,
    OPEN_DELIVERIES_MAX,
)
from outbox_kernel.infrastructure.operations.overview import stuck_queues
from outbox_kernel.infrastructure.outbox.sql import glance as sql
from outbox_kernel.infrastructure.outbox.sql.standing import EVENTS_THERE_ARE
from outbox_kernel.kernel.matching import matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.infrastructure.operations.abilities import Relay
    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.infrastructure.operations.overview import StuckQueue


@attrs.frozen(kw_only=True)
class SubscriptionGlance:
    """A subscription, or a name that has deliveries and never was one, and how far it is."""

    name: str
    kind: str | None = None
    patterns: list[str] = attrs.Factory(list)
    source: str | None = None
    """The queue whose events it is for; None: those written here."""
    ordered: bool = True
    since: datetime | None = None
    paused_at: datetime | None = None
    retired_at: datetime | None = None
    position: int | None = None
    """The lowest place of its cursors."""
    lag_events: int = 0
    """Events ahead of its places."""
    lag_is_at_least: bool = False
    """Whether there may be more: not all was looked at."""
    lag_positions: int | None = None
    """How far the log goes beyond its lowest place, whoever these events are for."""
    lag_seconds: float | None = None
    """How old the first of these events is."""
    waiting: int = 0
    """Deliveries, as are the next three."""
    retrying: int = 0
    leased: int = 0
    dead: int = 0
    deliveries_are_at_least: bool = False
    """Whether there may be more of them that wait or are run."""
    oldest_seconds: float | None = None
    """How old the oldest delivery is whose time has come."""
    carried_by: int = 0
    """Live relays."""
    carried_no_more: list[str] = attrs.Factory(list)
    """Its patterns that no live relay of its name carries."""
    stands_still: str | None = None
    """Why, as the relay says that waits for its broker, or for what its handler needs."""

    @property
    def is_unread(self) -> bool:
        """Whether events stand behind its cursors, and no live relay reads on for it."""
        return bool(self.lag_events and not self.carried_by and self.retired_at is None)

    @property
    def state(self) -> str:
        """What it is at, in a word or two."""
        for holds, word in (
            (self.retired_at is not None, "retired"),
            (self.kind is None, "unknown"),
            (self.paused_at is not None, "paused"),
            (self.stands_still is not None, "stands still"),
            (self.carried_by == 0, "unread" if self.is_unread else "not carried"),
            (self.dead > 0, "dead letters"),
            (self.retrying > 0, "retrying"),
        ):
            if holds:
                return word
        return "delivering"


@attrs.frozen(kw_only=True)
class Look:
    """How subscriptions fare, all or one, with the relays that are to carry them."""

    relays: list[Relay]
    subscriptions: list[SubscriptionGlance]
    stranded: list[Stranded]
    queues: list[StuckQueue]

    @property
    def live(self) -> list[Relay]:
        """The relays that live."""
        return [relay for relay in self.relays if relay.live]

    @property
    def vanished(self) -> list[Relay]:
        """Those whose lease has run out, and was not ended."""
        return [relay for relay in self.relays if not relay.live]


@attrs.frozen(kw_only=True)
class Glance(Look):
    """The state of an outbox, as far as one look shows it."""

    events: int
    events_are_estimated: bool


async def glance(desk: Desk) -> Glance:
    """Look at the whole outbox."""
    there_are = await desk.run_one(EVENTS_THERE_ARE, count_bytes_max=COUNT_BYTES_MAX)
    return Glance(
        **await _look(desk, None),
        events=there_are["events"],
        events_are_estimated=there_are["is_estimated"],
    )


async def look_at(desk: Desk, name: str) -> Look:
    """Look at one subscription, and what bears on it; there may be nothing of that name."""
    return Look(**await _look(desk, name))


async def _look(desk: Desk, name: str | None) -> dict[str, Any]:
    found = await relays(desk)
    subscriptions = await _subscriptions(desk, name, found)
    return {
        "relays": found,
        "subscriptions": subscriptions,
        "stranded": await stranded(desk, found, subscriptions, name),
        "queues": stuck_queues(found),
    }


async def glance_at(desk: Desk, name: str) -> SubscriptionGlance | None:
    """Look at one subscription; None: there is nothing of that name."""
    found = await _subscriptions(desk, name, await relays(desk))
    return found[0] if found else None


@attrs.frozen
class Ahead:
    """What a subscription would be given from a position on."""

    position: int
    events: int
    is_at_least: bool
    """Whether there may be more: not all was looked at."""
    since: datetime | None
    """When the first was stored."""


async def ahead_of(desk: Desk, name: str, position: int) -> Ahead:
    """Count what a subscription is due for from a position on."""
    row = await desk.run_one(sql.DUE_FROM, name=name, position=position, look_max=DELIVERIES_MAX)
    return Ahead(position, **row)


@attrs.frozen(kw_only=True)
class OpenDelivery:
    """A delivery that is to be run, or is being run."""

    position: int
    event_id: UUID
    status: str
    attempts: int
    available_at: datetime
    updated_at: datetime
    error_message: str | None
    event_type: str
    aggregate_type: str | None
    aggregate_id: UUID | None
    aggregate_key: str | None
    behind_event: UUID | None
    """The event that it waits behind."""
    behind_status: str | None


async def open_of(desk: Desk, name: str) -> list[OpenDelivery]:
    """List some deliveries of a handler that are to be run, those first that have failed."""
    rows = await desk.run(sql.OPEN_OF, name=name, look_max=DELIVERIES_MAX, deliveries_max=OPEN_DELIVERIES_MAX)
    return [OpenDelivery(**row) for row in rows]


async def pulse(desk: Desk) -> tuple[object, ...]:
    """Return what differs once something has happened."""
    return tuple(await desk.run_one(sql.PULSE))


async def stranded(
    desk: Desk,
    found: Sequence[Relay],
    subscriptions: Iterable[SubscriptionGlance],
    name: str | None = None,
) -> list[Stranded]:
    """Find what waits for a relay that does not live; of each handler so many deliveries are looked at."""
    abilities = [relay.abilities for relay in found if relay.live]
    known = {each.name: each for each in subscriptions}
    waiting = []
    for row in await desk.run(sql.KINDS, name=name, look_max=KINDS_DELIVERIES_MAX):
        subscription = known.get(row["handler"])
        retired = subscription is not None and subscription.retired_at is not None
        reason = (
            RETIRED
            if retired
            else why_not(abilities, row["handler"], row["event_type"], row["event_version"])
        )
        if reason is not None:
            left = subscription.carried_no_more if subscription and reason == NOT_FOR_TYPE else []
            by = [each for each in left if matches(row["event_type"], [each])]
            waiting.append(Stranded(**row, reason=reason, patterns=by))
    return waiting


async def _subscriptions(desk: Desk, name: str | None, found: Sequence[Relay]) -> list[SubscriptionGlance]:
    rows = {
        row["name"]: dict(row)
        for row in await desk.run(sql.SUBSCRIPTIONS, name=name, look_max=GLANCE_LAG_EVENTS_MAX)
    }
    left = {row["name"]: row for row in await desk.run(sql.DELIVERIES, name=name, look_max=DELIVERIES_MAX)}
    died = await counts(desk, name)
    return [
        _subscription(each, rows.get(each, {"name": each}), left.get(each), died.get(each, 0), found)
        for each in sorted({*rows, *left, *died})
    ]


def _subscription(
    name: str, row: dict[str, Any], left: Mapping[str, Any] | None, dead: int, found: Iterable[Relay]
) -> SubscriptionGlance:
    live = [relay for relay in found if relay.live]
    told = [relay.pauses[name] for relay in live if name in relay.pauses]
    patterns = () if row.get("retired_at") else row.get("patterns", ())
    deliveries = dict(left or {})
    return SubscriptionGlance(
        **row,
        **{each: deliveries.get(each, 0) for each in ("waiting", "retrying", "leased")},
        deliveries_are_at_least=deliveries.get("is_at_least", False),
        oldest_seconds=deliveries.get("oldest_seconds"),
        dead=dead,
        carried_by=sum(name in relay.abilities for relay in live),
        carried_no_more=carried_no_more(live, name, patterns),
        stands_still=min(told, key=lambda pause: pause["since"])["reason"] if told else None,
    )
