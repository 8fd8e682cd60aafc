"""A relay that serves while a test looks on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.relaying import Recorder, Stage, handler

LONG = 10.0
STEP = 0.01
RELAYS = "SELECT count(*) FROM outbox_relays"


@asynccontextmanager
async def serving(relay: Any) -> AsyncIterator[asyncio.Task[None]]:
    """Run it in the background, and stop it at the end.

    It has subscribed by then: before that nobody is due, and each event counts as delivered.
    """
    task, subscribed = asyncio.create_task(relay.run()), asyncio.create_task(relay.subscribed.wait())
    await asyncio.wait([task, subscribed], return_when=asyncio.FIRST_COMPLETED)
    subscribed.cancel()
    try:
        yield task
    finally:
        relay.stop()
        await task


def all_delivered(stage: Stage, count: int) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        statuses = list((await stage.events()).values())
        return statuses == ["delivered"] * count

    return holds


def at_the_gate() -> tuple[HandlerRegistration, asyncio.Event, asyncio.Event, list[str]]:
    """A handler that waits for leave; the leave; that it has begun; what it has begun with."""
    go, begun, seen = asyncio.Event(), asyncio.Event(), []

    async def act(event: Any) -> None:
        seen.append(event.what)
        begun.set()
        await go.wait()

    return handler("h", act), go, begun, seen


async def has_events(stage: Stage, status: str, at_least: int) -> bool:
    return list((await stage.events()).values()).count(status) >= at_least


async def cut(stage: Stage) -> None:
    await stage.witness.execute(
        """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
        """
    )


async def has_seen(recorder: Recorder, whats: set[str]) -> bool:
    return set(recorder.seen) >= whats


async def has_run(recorder: Recorder, count: int) -> bool:
    return len(recorder.seen) == count


async def has_begun(begun: list[Any], count: int) -> bool:
    return len(begun) >= count


async def no_keeper_lives() -> bool:
    return all(thread.name != "outbox-lease-keeper" for thread in threading.enumerate())


async def has_run_again(seen: list[str]) -> bool:
    return len(seen) == 2


async def has_looked_everywhere(relay: OutboxRelay) -> bool:
    """Whether no look at deliveries is under way, which would find out that the lease is lost."""
    shift = relay._shift  # noqa: SLF001 - nobody else can say
    if shift is None or shift.deliveries.turns.scanning:
        return False
    return not shift.lines.write._turn.locked()  # noqa: SLF001 - as above


async def has_in_hand(relay: OutboxRelay, count: int) -> bool:
    """Whether so many events are read and not done with."""
    shift = relay._shift  # noqa: SLF001 - where that is counted
    readers = (
        [] if shift is None else [each for every in shift.subscribers.values() for each in every.readers]
    )
    return sum(each.in_hand for each in readers) == count


async def begins_nothing_more(relay: OutboxRelay) -> bool:
    """Whether it only lets end what runs."""
    shift = relay._shift  # noqa: SLF001 - nobody else can say
    return shift is not None and all(each.workers.is_stopping for each in shift.subscribers.values())


async def knows_of_a_suspect(relay: OutboxRelay) -> bool:
    """Whether something is to run alone as soon as it can."""
    shift = relay._shift  # noqa: SLF001 - nobody else can say
    return shift is not None and shift.deliveries.suspects
