"""Who can run what: the live relays' abilities, held against what waits (R2, R9)."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import attrs

from infrastructure.outbox.sql.inspection import RELAYS, WAITING_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from infrastructure.operations.desk import Desk


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
    """Publishers whose broker takes nothing there, each with `reason` and `since`."""
    live: bool
    lease_seconds_left: float


async def relays(desk: Desk) -> list[Relay]:
    """Return every relay with a lease, those included whose lease has run out and not been ended."""
    rows = await desk.fetch(RELAYS, desk.now)
    return [
        Relay(**{**row, "abilities": json.loads(row["abilities"]), "pauses": json.loads(row["pauses"])})
        for row in rows
    ]


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


async def stranded(desk: Desk, found: Sequence[Relay], retired: Iterable[str] = ()) -> list[Stranded]:
    """Find what waits for a relay that does not live, and what waits for nothing since it was retired."""
    abilities, ended = [relay.abilities for relay in found if relay.live], set(retired)
    waiting: list[Stranded] = []
    for row in await desk.fetch(WAITING_KINDS):
        reason = (
            "the subscription is retired"
            if row["handler"] in ended
            else why_not(abilities, row["handler"], row["event_type"], row["event_version"])
        )
        if reason is not None:
            waiting.append(Stranded(**row, reason=reason))
    return waiting


def why_not(
    abilities: Iterable[dict[str, dict[str, int]]], handler: str, event_type: str, event_version: int
) -> str | None:
    """Say why none of these relays can run a handler for an event, or nothing if one can."""
    carrying = [each[handler] for each in abilities if handler in each]
    if not carrying:
        return "no live relay carries it"
    newest = max(_newest(each, event_type) for each in carrying)
    if newest >= event_version:
        return None
    if newest <= 0:
        return "the live relays that carry it do not know this event type"
    return f"the live relays that carry it know only older versions, up to {newest}"


def _newest(known: dict[str, Any], event_type: str) -> int:
    return max((int(known[pattern]) for pattern in known if fnmatchcase(event_type, pattern)), default=0)
