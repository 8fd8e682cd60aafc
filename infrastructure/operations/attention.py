"""What needs a person, of all that a look at the outbox shows: the worst first, each with what to do (O3, R9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from outbox_kernel.infrastructure.plain_text import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from outbox_kernel.infrastructure.operations.glance import Look, SubscriptionGlance


@attrs.frozen
class Need:
    """Something that does not mend itself, or that somebody should know of."""

    kind: Literal[
        "relays", "dead", "unread", "stranded", "queue", "outage", "paused", "left over", "vanished"
    ]
    state: Literal["fail", "warn", "info"]
    what: str
    remedy: str
    name: str | None = None
    """The handler, publisher or queue that it is about."""


_ORDER = {"fail": 0, "warn": 1, "info": 2}


def needs(seen: Look) -> list[Need]:
    """Return what a person should look at."""
    every = [*_of_relays(seen), *_of_queues(seen), *_of_stranded(seen)]
    for subscription in seen.subscriptions:
        every += _of_subscription(subscription, is_alive=bool(seen.live))
    return sorted(every, key=lambda need: _ORDER[need.state])


def about(each: SubscriptionGlance, every: Iterable[Need]) -> list[Need]:
    """Return those of all the needs that are a subscription's, by its name or by its queue."""
    return [
        need
        for need in every
        if need.name is not None and need.name == (each.source if need.kind == "queue" else each.name)
    ]


def _of_relays(seen: Look) -> Iterator[Need]:
    if not seen.live:
        yield Need("relays", "fail", "No relay lives: nothing is delivered", "Start `outbox relay`")
    for relay in seen.vanished:
        yield Need(
            "vanished",
            "warn",
            f"A relay vanished: {relay.host}, process {relay.process_id}",
            "Another one takes over from it; look why it ended",
        )


def _of_queues(seen: Look) -> Iterator[Need]:
    for queue in seen.queues:
        yield Need(
            "queue",
            "fail",
            f"{queue.host}, process {queue.process_id}, takes nothing from {queue.queue}: {queue.reason}",
            "Mend the queue or the broker; it goes on by itself",
            queue.queue,
        )


def _of_stranded(seen: Look) -> Iterator[Need]:
    for each in seen.stranded:
        yield Need(
            "stranded",
            "fail",
            f"{count(each.deliveries, 'delivery', 'deliveries')} of {each.event_type}, version {each.event_version}, "
            f"cannot be run: {each.reason}",
            "Start a relay with the code that can, or skip them",
            each.handler,
        )


def _of_subscription(each: SubscriptionGlance, *, is_alive: bool) -> Iterator[Need]:
    if each.dead and each.retired_at is None:
        yield Need(
            "dead",
            "fail",
            f"{each.dead:,} dead letter{'s' if each.dead > 1 else ''}",
            "Mend the cause, then retry them, or skip them; what waits behind them follows in order",
            each.name,
        )
    if each.is_unread and is_alive:
        yield Need(
            "unread",
            "fail",
            "No live relay carries it, and events stand behind it",
            "Start a relay with that handler, or retire it",
            each.name,
        )
    if each.stands_still is not None:
        yield Need(
            "outage",
            "warn",
            f"It stands still: {each.stands_still}",
            "It goes on by itself once that is back",
            each.name,
        )
    if each.carried_no_more:
        yield Need(
            "left over",
            "warn",
            f"Due for {', '.join(each.carried_no_more)}, which no live relay carries",
            "Start a relay with that code, or retire the pattern",
            each.name,
        )
    if each.paused_at is not None and each.retired_at is None:
        yield Need("paused", "info", "An operator holds it", "Resume it when it may go on", each.name)
