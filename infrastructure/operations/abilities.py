"""Who can run what: the live relays' abilities, held against what waits (R2, R9)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.operations.limits import TYPES_MAX
from outbox_kernel.infrastructure.outbox.sql.inspection import RELAYS, WAITING_KINDS
from outbox_kernel.kernel.matching import matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.infrastructure.operations.overview import SubscriptionState

RETIRED = "the subscription is retired"
NOT_CARRIED = "no live relay carries it"
NOT_FOR_TYPE = "the live relays that carry it do not know this event type"


@attrs.frozen
class Relay:
    """A relay, as its lease tells of it."""

    id: UUID
    epoch: int
    host: str
    process_id: int
    started_at: datetime
    renewed_at: datetime
    expires_at: datetime
    code_version: str
    abilities: dict[str, dict[str, int]]
    pauses: dict[str, dict[str, str]]
    """Who stands still there, and queues that give nothing, each with `reason` and `since`."""
    patterns: dict[str, list[str]] | None
    """By name, what it is subscribed by; of older code, which does not say, None."""
    live: bool
    lease_seconds_left: float

    def carries(self, name: str, pattern: str) -> bool:
        """Whether it is subscribed by this pattern; of older code, whether it may be."""
        if self.patterns is not None:
            return pattern in self.patterns.get(name, ())
        return pattern in self.abilities.get(name, ())


async def relays(desk: Desk) -> list[Relay]:
    """Return every relay with a lease, those included whose lease has run out and not been ended."""
    return [relay_of(row) for row in await desk.run(RELAYS)]


def types_known(found: Iterable[Relay], name: str | None = None) -> list[str]:
    """Return the event types that live relays run, or run by one handler; some of very many."""
    live = [relay.abilities for relay in found if relay.live]
    carried = [kinds for each in live for handler, kinds in each.items() if name in (None, handler)]
    return sorted({kind for kinds in carried for kind in kinds})[:TYPES_MAX]


def relay_of(row: Mapping[str, Any]) -> Relay:
    """Return a relay as its row tells of it."""
    documents = {name: row[name] and json.loads(row[name]) for name in ("abilities", "pauses", "patterns")}
    return Relay(**{**row, **documents})


def carried_no_more(found: Iterable[Relay], name: str, patterns: Iterable[str]) -> list[str]:
    """Return the patterns that no live relay carries, of a name that live relays do carry."""
    live = [relay for relay in found if relay.live and name in relay.abilities]
    return [each for each in patterns if live and not any(relay.carries(name, each) for relay in live)]


@attrs.frozen
class Stranded:
    """Deliveries that no live relay can run, and why."""

    handler: str
    event_type: str
    event_version: int
    deliveries: int
    position: int
    since: datetime
    reason: str
    patterns: list[str]
    """Where live relays carry the handler, but not for this type: what the event is due by."""


async def stranded(
    desk: Desk, found: Sequence[Relay], subscriptions: Iterable[SubscriptionState] = ()
) -> list[Stranded]:
    """Find what waits for a relay that does not live, and what waits for nothing since it was retired."""
    return stranded_among(await desk.run(WAITING_KINDS), found, subscriptions)


def stranded_among(
    kinds: Iterable[Mapping[str, Any]], found: Sequence[Relay], subscriptions: Iterable[SubscriptionState]
) -> list[Stranded]:
    """Find it among the kinds of what waits."""
    abilities = [relay.abilities for relay in found if relay.live]
    known = {each.name: each for each in subscriptions}
    waiting: list[Stranded] = []
    for row in kinds:
        subscription = known.get(row["handler"])
        reason = (
            RETIRED
            if subscription is not None and subscription.retired_at is not None
            else why_not(abilities, row["handler"], row["event_type"], row["event_version"])
        )
        if reason is not None:
            left = subscription.carried_no_more if subscription and reason == NOT_FOR_TYPE else []
            by = [each for each in left if matches(row["event_type"], [each])]
            waiting.append(Stranded(**row, reason=reason, patterns=by))
    return waiting


def why_not(
    abilities: Iterable[dict[str, dict[str, int]]], handler: str, event_type: str, event_version: int
) -> str | None:
    """Say why none of these relays can run a handler for an event, or nothing if one can."""
    carrying = [each[handler] for each in abilities if handler in each]
    if not carrying:
        return NOT_CARRIED
    newest = max(_newest(each, event_type) for each in carrying)
    if newest >= event_version:
        return None
    if newest <= 0:
        return NOT_FOR_TYPE
    return f"the live relays that carry it know only older versions, up to {newest}"


def _newest(known: dict[str, Any], event_type: str) -> int:
    return max((int(known[pattern]) for pattern in known if matches(event_type, [pattern])), default=0)
