"""Pause, resume, retire: what an operator says of a subscription as a whole (R2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from infrastructure.errors import InfrastructureError
from infrastructure.operations.mending import Chosen, skip
from infrastructure.operations.selection import Selection, no_subscription
from infrastructure.outbox.sql.operations import (
    CHOOSE_DELIVERIES,
    PAUSE,
    RESUME,
    RETIRE_UNCARRIED,
    SUBSCRIPTION,
    SUBSCRIPTION_NAMES,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from infrastructure.operations.desk import Desk


class StillCarried(InfrastructureError):
    """A live relay carries the handler, and would bring the subscription back."""


class SubscriptionRetired(InfrastructureError):
    """The subscription is due for nothing."""


@attrs.frozen
class Subscription:
    """An entry of `outbox_subscriptions`, with the live relays that carry it."""

    name: str
    kind: str
    patterns: list[str]
    ordered: bool
    since: datetime
    paused_at: datetime | None
    retired_at: datetime | None
    carried_by: list[str]


async def subscription(desk: Desk, name: str) -> Subscription:
    """Find a subscription, or raise NothingFound with the names there are."""
    rows = await desk.fetch(SUBSCRIPTION, name, desk.now)
    if rows:
        return Subscription(*rows[0])
    raise no_subscription(name, [row[0] for row in await desk.fetch(SUBSCRIPTION_NAMES)])


async def pause(desk: Desk, name: str) -> bool:
    """Hold a subscription; False if it was held already."""
    found = await subscription(desk, name)
    if found.retired_at is not None:
        raise SubscriptionRetired(f"{name!r} is retired and due for nothing: there is nothing to pause")
    return await _change(desk, PAUSE, name, desk.now)


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
    newly = await _change(desk, RETIRE_UNCARRIED, name, desk.now)
    if not newly and (found.carried_by or found.retired_at is None):
        found = await subscription(desk, name)
        raise StillCarried(
            f"{name!r} is carried by a live relay ({'; '.join(found.carried_by)}), which would bring it back: "
            "deploy the code without that handler first, or hold it with `outbox pause`"
        )
    arguments = await Selection(handler=name).arguments(desk)
    rows = await desk.fetch(CHOOSE_DELIVERIES, *arguments, ["waiting", "dead", "leased"], True)  # noqa: FBT003
    ended = await skip(desk, [Chosen(*row) for row in rows], begin(len(rows)))
    return Retired(newly, ended.changed)


async def _change(desk: Desk, statement: str, *arguments: object) -> bool:
    changed = bool(await desk.fetch(statement, *arguments))
    if changed:
        await desk.wake_relays()
    return changed
