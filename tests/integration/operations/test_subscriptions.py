"""Pause, resume, retire: a subscription ends by an operator's word alone (R2, O1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from outbox_kernel.infrastructure.operations.desk import Desk
from outbox_kernel.infrastructure.operations.selection import NothingFound
from outbox_kernel.infrastructure.operations.subscriptions import (
    LastPattern,
    Retired,
    StillCarried,
    SubscriptionRetired,
    pause,
    resume,
    retire,
    retire_pattern,
)
from outbox_kernel.infrastructure.outbox.sql.operations import HOLD_SUBSCRIPTION, RETIRE_PATTERN
from outbox_kernel.infrastructure.outbox.sql.subscriptions import SUBSCRIBE
from tests.waiting import until

HANDLER = "bank.Letters"


async def test_pausing_and_resuming_raise_the_revision_that_relays_watch(outbox: Any) -> None:
    await outbox.subscription()
    query = "SELECT paused_at IS NOT NULL, revision FROM outbox_subscriptions"
    assert await pause(outbox.desk, HANDLER)
    assert [tuple(row) for row in await outbox.rows(query)] == [(True, 2)]
    assert not await pause(outbox.desk, HANDLER)
    assert await resume(outbox.desk, HANDLER)
    assert [tuple(row) for row in await outbox.rows(query)] == [(False, 3)]
    assert not await resume(outbox.desk, HANDLER)


async def test_retiring_ends_what_waits_and_closes_its_events(outbox: Any) -> None:
    await outbox.subscription()
    waiting, dead = await outbox.event(), await outbox.event()
    held = await outbox.event()
    await outbox.delivery(waiting, "waiting")
    await outbox.delivery(dead)
    await outbox.delivery(held, "leased", lease=await outbox.relay({HANDLER: {}}, live=False))
    assert await retire(outbox.desk, HANDLER) == Retired(newly=True, skipped=3)
    for event in (waiting, dead, held):
        assert await outbox.status(event) == "delivered skipped"
    assert {outcome for _, outcome in await outbox.receipts()} == {"skipped"}
    assert await outbox.value("SELECT retired_at IS NOT NULL FROM outbox_subscriptions")


async def test_retiring_again_ends_what_came_late(outbox: Any) -> None:
    await outbox.subscription()
    await retire(outbox.desk, HANDLER)
    event = await outbox.event()
    await outbox.delivery(event, "waiting")
    assert await retire(outbox.desk, HANDLER) == Retired(newly=False, skipped=1)


async def test_what_a_live_relay_carries_is_not_retired(outbox: Any) -> None:
    await outbox.subscription()
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    with pytest.raises(StillCarried, match=r"carried by a live relay \(host-1, process 7\)"):
        await retire(outbox.desk, HANDLER)
    assert await outbox.value("SELECT retired_at IS NULL FROM outbox_subscriptions")


async def test_an_unknown_name_is_answered_with_those_there_are(outbox: Any) -> None:
    await outbox.subscription()
    for change in (pause, resume, retire):
        with pytest.raises(NothingFound, match=r"no subscription 'bank\.Leters': there are bank\.Letters"):
            await change(outbox.desk, "bank.Leters")


async def test_what_is_retired_cannot_be_paused(outbox: Any) -> None:
    await outbox.subscription()
    await retire(outbox.desk, HANDLER)
    with pytest.raises(SubscriptionRetired, match="nothing to pause"):
        await pause(outbox.desk, HANDLER)


# --- a single pattern -----------------------------------------------------------------------------------


async def patterns_of(outbox: Any) -> list[str]:
    return list(await outbox.value("SELECT patterns FROM outbox_subscriptions"))


async def test_ending_a_pattern_ends_what_is_open_by_it_alone(outbox: Any) -> None:
    """R2: what another pattern has selected as well, and what another handler has, stays due."""
    await outbox.subscription(patterns=("bank.*", "bank.paid", "shop.opened"))
    paid, noted = [await outbox.event(event_type=f"bank.{each}") for each in ("paid", "noted")]
    dead, opened = (
        await outbox.event(),
        await outbox.event(event_type="shop.opened"),
    )
    await outbox.execute("UPDATE outbox_events SET event_type = 'bank.sent' WHERE event_id = $1", dead)
    for event in (paid, noted, opened):
        await outbox.delivery(event, "waiting")
    await outbox.delivery(dead)
    await outbox.delivery(noted, "waiting", handler="bank.Other")
    await outbox.passed()
    assert await retire_pattern(outbox.desk, HANDLER, "bank.*") == Retired(newly=True, skipped=2)
    assert [await outbox.status(each) for each in (paid, noted, dead, opened)] == [
        *("open waiting", "open skipped waiting", "delivered skipped", "open waiting"),
    ]
    assert await patterns_of(outbox) == ["bank.paid", "shop.opened"]
    assert await outbox.value("SELECT revision FROM outbox_subscriptions") == 2


async def test_what_a_live_relay_is_publishing_by_the_pattern_is_left_to_it(outbox: Any) -> None:
    """R3: a live relay's work is its own."""
    await outbox.subscription(patterns=("bank.*", "bank.paid"))
    lease = await outbox.relay({HANDLER: {"bank.paid": 1}}, patterns={HANDLER: ["bank.paid"]})
    event = await outbox.event(event_type="bank.noted")
    await outbox.delivery(event, "leased", lease=lease)
    assert await retire_pattern(outbox.desk, HANDLER, "bank.*") == Retired(newly=True, skipped=0)
    assert await outbox.status(event) == "open leased"


@pytest.mark.parametrize(
    ("abilities", "patterns", "pattern"),
    [
        ({"bank.*": 1}, ["bank.*"], "bank.*"),
        ({"bank.*": 1}, None, "bank.*"),
    ],
)
async def test_a_pattern_that_a_live_relay_carries_is_not_ended(
    outbox: Any, abilities: dict[str, int], patterns: list[str] | None, pattern: str
) -> None:
    """R2: also where older code says what it can run, and not what it is subscribed by."""
    told = None if patterns is None else {HANDLER: patterns}
    await outbox.subscription(patterns=(pattern, "shop.opened"))
    await outbox.relay({HANDLER: abilities}, patterns=told)
    with pytest.raises(StillCarried, match=r"is carried by a live relay \(host-1, process 7\), which would"):
        await retire_pattern(outbox.desk, HANDLER, pattern)
    assert await patterns_of(outbox) == [pattern, "shop.opened"]


async def test_a_dead_relay_keeps_no_pattern(outbox: Any) -> None:
    await outbox.subscription(patterns=("bank.paid", "shop.opened"))
    await outbox.relay({HANDLER: {"bank.paid": 1}}, patterns={HANDLER: ["bank.paid"]}, live=False)
    assert (await retire_pattern(outbox.desk, HANDLER, "bank.paid")).newly


async def test_the_last_pattern_is_ended_with_the_whole(outbox: Any) -> None:
    await outbox.subscription()
    with pytest.raises(LastPattern, match=r"retire the whole with `outbox retire bank\.Letters`"):
        await retire_pattern(outbox.desk, HANDLER, "bank.paid")
    assert await patterns_of(outbox) == ["bank.paid"]


async def test_a_pattern_that_is_not_there_is_answered_with_those_that_are(outbox: Any) -> None:
    await outbox.subscription(patterns=("bank.*", "bank.paid"))
    with pytest.raises(NothingFound, match=r"has no pattern 'bank': there is 'bank\.\*', 'bank\.paid'"):
        await retire_pattern(outbox.desk, HANDLER, "bank")
    with pytest.raises(NothingFound, match=r"no subscription 'bank\.Leters': there are bank\.Letters"):
        await retire_pattern(outbox.desk, "bank.Leters", "bank.*")
    await retire(outbox.desk, HANDLER)
    with pytest.raises(SubscriptionRetired, match="no pattern is left to end"):
        await retire_pattern(outbox.desk, HANDLER, "bank.*")


async def test_ending_a_pattern_again_ends_what_an_interruption_has_left_open(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2: the pattern is ended first and for itself, so that no relay waits while much is skipped."""
    await outbox.subscription(patterns=("bank.paid", "shop.opened"))
    event = await outbox.event()
    await outbox.delivery(event, "waiting")

    async def fail(*_: Any) -> None:
        raise OSError("the connection broke")

    with monkeypatch.context() as patch:
        patch.setattr("outbox_kernel.infrastructure.operations.subscriptions.skip", fail)
        with pytest.raises(OSError, match="broke"):
            await retire_pattern(outbox.desk, HANDLER, "bank.paid")
    assert await patterns_of(outbox) == ["shop.opened"]
    assert await retire_pattern(outbox.desk, HANDLER, "bank.paid") == Retired(newly=False, skipped=1)
    with pytest.raises(NothingFound, match=r"has no pattern 'bank\.paid'"):
        await retire_pattern(outbox.desk, HANDLER, "bank.paid")


async def test_a_relay_that_starts_while_a_pattern_is_ended_brings_it_back(outbox: Any) -> None:
    """R2: it lives before it subscribes, and waits for whoever has the subscription."""
    await outbox.subscription(patterns=("bank.paid", "shop.opened"))
    async with other_relay(outbox) as starting:
        async with outbox.desk.connection.transaction():
            await outbox.desk.run(HOLD_SUBSCRIPTION, name=HANDLER)
            subscribing = asyncio.create_task(starting())
            await until(lambda: waits(outbox))
            await outbox.desk.run(RETIRE_PATTERN, name=HANDLER, pattern="bank.paid")
        await subscribing
    assert await patterns_of(outbox) == ["bank.paid", "shop.opened"]


@asynccontextmanager
async def other_relay(outbox: Any) -> AsyncIterator[Callable[[], Coroutine[Any, Any, Any]]]:
    """What a relay says of itself once its lease is there."""
    connection = await asyncpg.connect(outbox.url)
    row = {
        "names": HANDLER,
        "kinds": "handler",
        "patterns": '["bank.paid"]',
        "ordered": True,
        "bounded": False,
    }
    values = {name: [value] for name, value in row.items()} | {"sources": [None], "former": [None]}
    try:
        yield lambda: Desk(connection).run(SUBSCRIBE, is_start=True, **values)
    finally:
        await connection.close()


async def waits(outbox: Any) -> bool:
    # Within a transaction the server answers what it has answered before.
    await outbox.execute("SELECT pg_stat_clear_snapshot()")
    return bool(
        await outbox.value(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%AS present%' "
            "AND datname = current_database()"
        )
    )
