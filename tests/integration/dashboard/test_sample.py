"""The sample has whatever there can be, is played as if relays lived, and mixes with nothing else (O2, O3)."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from outbox_kernel.infrastructure.operations.dead_letters import groups
from outbox_kernel.infrastructure.operations.glance import glance
from outbox_kernel.infrastructure.sample import fill, is_filled, play
from outbox_kernel.infrastructure.sample.filling import NotEmpty
from outbox_kernel.infrastructure.sample.playing import _CHANCE, beat
from outbox_kernel.infrastructure.sample.shop import SUBSCRIPTIONS
from tests.integration.operations.conftest import Outbox

# A number at which somebody buys, and one at which nobody does.
BUYS = next(number for number in range(1_000_000, 1_001_000) if Random(number).random() < _CHANCE)
BUYS_NOT = next(number for number in range(1_000) if Random(number).random() >= _CHANCE)


async def test_it_has_whatever_there_can_be(outbox: Outbox) -> None:
    assert not await is_filled(outbox.desk)
    await fill(outbox.desk)
    assert await is_filled(outbox.desk)
    seen = await glance(outbox.desk)
    assert {each.state for each in seen.subscriptions} == {
        "dead letters",
        "delivering",
        "paused",
        "retired",
        "retrying",
        "stands still",
        "unread",
    }
    assert len(seen.subscriptions) == len(SUBSCRIPTIONS)
    assert (len(seen.live), len(seen.vanished), len(seen.queues)) == (3, 1, 1)
    assert len(await groups(outbox.desk)) >= 6
    assert {each.reason.partition(",")[0] for each in seen.stranded} == {
        "the live relays that carry it know only older versions"
    }
    states = {row[0] for row in await outbox.rows("SELECT DISTINCT status FROM outbox_deliveries")}
    assert states == {"dead", "waiting", "leased", "done", "skipped"}
    events = {row[0] for row in await outbox.rows("SELECT DISTINCT status FROM outbox_status")}
    assert events == {"pending", "open", "dead", "delivered"}
    for question in (
        "SELECT count(*) FROM outbox_events WHERE headers ? 'causation_id'",
        "SELECT count(*) FROM outbox_events WHERE not_before IS NOT NULL",
        "SELECT count(*) FROM outbox_events WHERE aggregate_key ~ '[^ -~]'",
        "SELECT count(*) FROM outbox_events WHERE source IS NOT NULL",
        "SELECT count(*) FROM outbox_deliveries WHERE error_message LIKE 'SecondCommit: %'",
    ):
        assert await outbox.value(question) > 0, question


async def test_an_outbox_with_events_is_left_as_it_is(outbox: Outbox) -> None:
    await outbox.event()
    with pytest.raises(NotEmpty, match="there are events in this outbox already"):
        await fill(outbox.desk)
    assert await outbox.value("SELECT count(*) FROM outbox_subscriptions") == 0


async def test_it_is_played(outbox: Outbox) -> None:
    await fill(outbox.desk)
    before = await outbox.value("SELECT count(*) FROM outbox_events")
    await beat(outbox.desk, BUYS_NOT)
    assert await outbox.value("SELECT count(*) FROM outbox_events") == before
    await outbox.execute(
        "UPDATE outbox_deliveries SET status = 'waiting', attempts = 0 WHERE status = 'dead'"
    )
    await beat(outbox.desk, BUYS)
    assert await outbox.value("SELECT count(*) FROM outbox_events") > before
    assert (
        await outbox.value("SELECT count(*) FROM outbox_deliveries WHERE error_message LIKE 'Payment%'") == 0
    )
    newest = await outbox.value("SELECT max(position) FROM outbox_events")
    reserve = "SELECT min(position) FROM outbox_cursor_places WHERE subscription = 'stock.Reserve'"
    assert await outbox.value(reserve) == newest
    found = {each.name: each for each in (await glance(outbox.desk)).subscriptions}
    assert found["stock.Reserve"].lag_events == 0
    assert found["stock.Forecast"].lag_events > 0


async def test_it_is_played_until_it_is_stopped(outbox: Outbox) -> None:
    await fill(outbox.desk)
    beats = 0

    async def pause(_: float) -> None:
        nonlocal beats
        beats += 1
        if beats == 2:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await play(outbox.desk, pause)
    assert beats == 2
