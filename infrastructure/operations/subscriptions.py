"""Pause, resume, retire: what an operator says of a subscription as a whole (R2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.operations.abilities import relays
from outbox_kernel.infrastructure.operations.mending import Chosen, skip
from outbox_kernel.infrastructure.operations.selection import (
    NothingFound,
    Selection,
    no_subscription,
    type_pattern,
)
from outbox_kernel.infrastructure.outbox.sql.operations import (
    CHOOSE_DELIVERIES,
    HOLD_SUBSCRIPTION,
    PAUSE,
    RESUME,
    RETIRE_PATTERN,
    RETIRE_UNCARRIED,
    SUBSCRIPTION,
    SUBSCRIPTION_NAMES,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from outbox_kernel.infrastructure.operations.desk import Desk
    from outbox_kernel.infrastructure.outbox.sql.named import Statement

_OPEN = ("waiting", "dead", "leased")


class StillCarried(InfrastructureError):
    """A live relay carries the handler, and would bring the subscription back."""


class LastPattern(InfrastructureError):
    """Without this pattern nothing would be left of the subscription."""


class SubscriptionRetired(InfrastructureError):
    """The subscription is due for nothing."""


@attrs.frozen
class Subscription:
    """An entry of `outbox_subscriptions`, with the live relays that carry it."""

    name: str
    kind: str
    patterns: list[str]
    source: str | None
    """The queue whose events it is for; None: those written here."""
    ordered: bool
    since: datetime
    paused_at: datetime | None
    retired_at: datetime | None
    carried_by: list[str]


async def subscription(desk: Desk, name: str) -> Subscription:
    """Find a subscription, or raise NothingFound with the names there are."""
    rows = await desk.run(SUBSCRIPTION, name=name)
    if rows:
        return Subscription(*rows[0])
    raise no_subscription(name, [row[0] for row in await desk.run(SUBSCRIPTION_NAMES)])


async def pause(desk: Desk, name: str) -> bool:
    """Hold a subscription; False if it was held already."""
    found = await subscription(desk, name)
    if found.retired_at is not None:
        raise SubscriptionRetired(f"{name!r} is retired and due for nothing: there is nothing to pause")
    return await _change(desk, PAUSE, name)


async def resume(desk: Desk, name: str) -> bool:
    """Let a subscription go on; False if nothing held it."""
    await subscription(desk, name)
    return await _change(desk, RESUME, name)


@attrs.frozen
class Retired:
    """What retiring came to: whether it was new, and how many deliveries ended with it."""

    newly: bool
    skipped: int


async def retire(
    desk: Desk, name: str, begin: Callable[[int], Callable[[int], None]] = lambda _: lambda _: None
) -> Retired:
    """End a subscription that nobody carries, and with it what waits for it.

    Again, for what a relay that knew it still has written down meanwhile.
    """
    found = await subscription(desk, name)

    async def work() -> bool:
        await desk.run(HOLD_SUBSCRIPTION, name=name)
        return await _change(desk, RETIRE_UNCARRIED, name)

    newly = await desk.in_turn(work)
    if not newly and (found.carried_by or found.retired_at is None):
        found = await subscription(desk, name)
        raise StillCarried(
            f"{name!r} is carried by a live relay ({'; '.join(found.carried_by)}), which would bring it back: "
            "deploy the code without that handler first, or hold it with `outbox pause`"
        )
    arguments = await Selection(handler=name).arguments(desk)
    rows = await desk.run(CHOOSE_DELIVERIES, **arguments, statuses=_OPEN)
    ended = await skip(desk, [Chosen(*row) for row in rows], begin(len(rows)))
    return Retired(newly, ended.changed)


async def retire_pattern(
    desk: Desk,
    name: str,
    pattern: str,
    begin: Callable[[int], Callable[[int], None]] = lambda _: lambda _: None,
) -> Retired:
    """End one pattern of a subscription, and with it what is open by that pattern alone.

    Again, for what is open still when that was interrupted.
    """

    async def work() -> tuple[bool, list[str]]:
        await desk.run(HOLD_SUBSCRIPTION, name=name)
        others = await _others(desk, name, pattern)
        return bool(await desk.run(RETIRE_PATTERN, name=name, pattern=pattern)), others

    newly, others = await desk.in_turn(work)
    arguments = await Selection(handler=name).arguments(desk)
    arguments["pattern"] = type_pattern([pattern], but=others)
    rows = await desk.run(CHOOSE_DELIVERIES, **arguments, statuses=_OPEN)
    if not (newly or rows):
        known = ", ".join(map(repr, others))
        raise NothingFound(f"{name!r} has no pattern {pattern!r}: there is {known}")
    ended = await skip(desk, [Chosen(*row) for row in rows], begin(len(rows)))
    await desk.wake_relays()
    return Retired(newly, ended.changed)


async def _others(desk: Desk, name: str, pattern: str) -> list[str]:
    """Return what is left of a subscription without a pattern, or raise why that pattern cannot be ended."""
    found = await subscription(desk, name)
    if found.retired_at is not None:
        raise SubscriptionRetired(f"{name!r} is retired and due for nothing: no pattern is left to end")
    await _require_uncarried(desk, name, pattern)
    if found.patterns == [pattern]:
        raise LastPattern(
            f"{pattern!r} is the last pattern of {name!r}: retire the whole with `outbox retire {name}`"
        )
    return [each for each in found.patterns if each != pattern]


async def _require_uncarried(desk: Desk, name: str, pattern: str) -> None:
    live = [each for each in await relays(desk) if each.live and each.carries(name, pattern)]
    if live:
        where = "; ".join(f"{each.host}, process {each.process_id}" for each in live)
        raise StillCarried(
            f"{pattern!r} of {name!r} is carried by a live relay ({where}), which would bring it back: "
            "deploy the code without it first, and wait until the last relay with it has ended"
        )


async def _change(desk: Desk, statement: Statement, name: str) -> bool:
    changed = bool(await desk.run(statement, name=name))
    if changed:
        await desk.wake_relays()
    return changed
