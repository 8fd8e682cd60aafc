"""Filling: the week of the shop into an outbox that is empty."""

from __future__ import annotations

import json
from bisect import bisect_right
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID, uuid5

from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.outbox.sql import sample as sql
from outbox_kernel.infrastructure.relay.outages import QUEUE
from outbox_kernel.infrastructure.sample.failing import Failures
from outbox_kernel.infrastructure.sample.limits import DAY_SECONDS, LEASE_SECONDS, WEEK_SECONDS
from outbox_kernel.infrastructure.sample.shop import (
    CODE_VERSION,
    LIVE_HOSTS,
    SHIPMENTS,
    SUBSCRIPTIONS,
    VANISHED_HOST,
    Fate,
)
from outbox_kernel.infrastructure.sample.story import Story, columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from outbox_kernel.infrastructure.operations import Desk
    from outbox_kernel.infrastructure.sample.shop import Subscribed
    from outbox_kernel.infrastructure.sample.story import Told

_NAMESPACE = UUID("5a0c7d52-6d0a-4b52-9a3f-0c5b1b1b6a10")
_HOUR = 3_600.0
# Of a sum that is to come out as what it was made of.
_EPSILON = 1e-6
_STANDING = (Fate.PAUSED, Fate.AWAY, Fate.UNREAD)


class NotEmpty(InfrastructureError):
    """The sample would mix with what is there."""


async def fill(desk: Desk) -> None:
    """Write the sample into an empty outbox, all of it or nothing."""
    async with desk.connection.transaction():
        if not (await desk.run_one(sql.IS_EMPTY))["is_empty"]:
            raise NotEmpty("there are events in this outbox already: fill another one with the sample")
        told = Story(await desk.clock()).week()
        failures = Failures(told, id_of(LIVE_HOSTS[0]))
        rows = await desk.run(sql.EVENTS, **columns(told))
        position_by_id = {row["event_id"]: row["position"] for row in rows}
        positions = [position_by_id[each.event_id] for each in told]
        await desk.run(sql.SERVER)
        relays = await _relays(desk)
        for each in SUBSCRIPTIONS:
            owner = None if each.fate is Fate.UNREAD else relays[len(each.name) % len(relays)]
            await _subscription(desk, each, told, positions, owner)
        await desk.run(sql.DELIVERIES, **failures.columns())
        await desk.run(sql.RECEIPTS, **failures.receipt_columns())


async def is_filled(desk: Desk) -> bool:
    """Whether the sample is there."""
    return bool((await desk.run_one(sql.IS_FILLED, relay=id_of(VANISHED_HOST)))["is_filled"])


def id_of(name: str) -> UUID:
    """Return the id of something of the sample, the same each time."""
    return uuid5(_NAMESPACE, name)


async def _relays(desk: Desk) -> list[UUID]:
    """Let some relays live, and one have vanished; return those that live."""
    carried = [each for each in SUBSCRIPTIONS if each.fate not in {Fate.UNREAD, Fate.RETIRED}]
    patterns = {each.name: [one for one in each.patterns if one not in each.not_carried] for each in carried}
    abilities = {name: dict.fromkeys(each, 1) for name, each in patterns.items()}
    now = await desk.clock()
    pauses = {
        each.name: {"reason": each.reason, "since": now.isoformat()} for each in carried if each.reason
    } | {
        f"{QUEUE}{SHIPMENTS}": {
            "reason": "the queue is declared with other arguments: delete it, or correct the topology",
            "since": now.isoformat(),
        }
    }
    for number, host in enumerate((*LIVE_HOSTS, VANISHED_HOST)):
        lives = host != VANISHED_HOST
        await desk.run(
            sql.RELAY,
            relay=id_of(host),
            age_seconds=_HOUR * (5 + 31 * number),
            lease_seconds=LEASE_SECONDS if lives else -720.0,
            process_id=100 + 7 * number,
            host=host,
            code_version=CODE_VERSION if lives else "2026.10.9",
            abilities=json.dumps(abilities),
            pauses=json.dumps(pauses if number == 0 else {}),
            patterns=json.dumps(patterns),
        )
    return [id_of(host) for host in LIVE_HOSTS]


async def _subscription(
    desk: Desk, each: Subscribed, told: Sequence[Told], positions: Sequence[int], owner: UUID | None
) -> None:
    """Subscribe, and let it have gone through the week as its fate was."""
    passed = [0, *accumulate(each.is_due(event.event_type, event.source) for event in told)]
    steps = [
        (positions[reached - 1] if reached else 0, seconds, passed[reached])
        for seconds, reached in _reached(each, told)
    ]
    await desk.run(
        sql.SUBSCRIPTION,
        name=each.name,
        kind=each.kind,
        patterns=list(each.patterns),
        source=each.source,
        ordered=each.ordered,
        is_paused=each.fate is Fate.PAUSED,
        is_retired=each.fate is Fate.RETIRED,
        reader=id_of(each.name),
        relay=owner,
        positions=[position for position, _, _ in steps],
        seconds=[seconds for _, seconds, _ in steps],
        events=[events for _, _, events in steps],
    )


def _reached(each: Subscribed, told: Sequence[Told]) -> Iterator[tuple[float, int]]:
    """Yield how long ago it wrote down how many events it had come behind, the longest ago first."""
    roll = Random(each.name)  # noqa: S311 - nobody gains by guessing how late it was
    moments = {seconds: _late(each, seconds) * 4 for seconds in _moments()}
    for event in told:
        if event.seconds < DAY_SECONDS:
            late = _late(each, event.seconds) * (0.5 + roll.expovariate(1.5))
            moments[event.seconds - late] = late
    stored, reached = [-event.seconds for event in told], 0
    stands_at = bisect_right(stored, -each.behind_seconds) if each.fate in _STANDING else len(told)
    for seconds in sorted(moments, reverse=True):
        if seconds > 0:
            come_to = bisect_right(stored, -seconds - moments[seconds] + _EPSILON)
            reached = max(reached, min(come_to, stands_at))
            yield seconds, reached


def _moments() -> Iterator[float]:
    """Yield how long ago progress was written down though nothing had come: the nearer, the closer together."""
    seconds = WEEK_SECONDS
    while seconds > 1.0:
        yield seconds
        seconds -= max(1.0, min(600.0, seconds / 60))


def _late(each: Subscribed, seconds: float) -> float:
    """Return how late it came to events so long ago."""
    if each.fate is Fate.BEHIND:
        return max(1.0, each.behind_seconds * (1 - seconds / (10 * _HOUR)))
    usual = each.behind_seconds if each.fate is Fate.FINE else 0.5
    # Now and then an hour was busy.
    return usual * (30.0 if int(seconds / _HOUR) % 23 == 5 else 1.0)  # noqa: PLR2004 - one of them
