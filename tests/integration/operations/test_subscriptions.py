"""Pause, resume, retire: a subscription ends by an operator's word alone (R2, O1)."""

from __future__ import annotations

from typing import Any

import pytest

from infrastructure.operations.selection import NothingFound
from infrastructure.operations.subscriptions import (
    Retired,
    StillCarried,
    SubscriptionRetired,
    pause,
    resume,
    retire,
)

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
    waiting, dead = await outbox.event(status="open"), await outbox.event(status="dead")
    held = await outbox.event(status="open")
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
    event = await outbox.event(status="open")
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
