"""Purge: what is delivered goes after a while, and a receipt outlives its event (R13)."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from outbox_kernel.infrastructure.operations.purging import Purged, purge
from outbox_kernel.infrastructure.outbox.sql import in_schema
from outbox_kernel.infrastructure.outbox.sql.retention import PURGE_EVENTS


async def test_only_what_was_delivered_long_ago_goes_with_all_that_belongs_to_it(outbox: Any) -> None:
    old, young = await outbox.event(days_old=8), await outbox.event(days_old=6)
    dead, waiting = (
        await outbox.event(status="dead", days_old=8),
        await outbox.event(status="open", days_old=8),
    )
    for event in (old, young, dead, waiting):
        await outbox.delivery(event, "done")
        await outbox.receipt(event, days_old=8)
    assert await purge(outbox.desk, 7) == Purged(events=1, deliveries=1, receipts=1)
    assert await outbox.status(old) == "gone"
    assert len(await outbox.receipts()) == 3
    assert await outbox.value("SELECT count(*) FROM outbox_deliveries") == 3


async def test_a_receipt_stays_for_seven_days_even_if_its_event_does_not(outbox: Any) -> None:
    event = await outbox.event(days_old=2)
    await outbox.receipt(event, days_old=2)
    assert await purge(outbox.desk, 1) == Purged(events=1)
    assert await outbox.receipts() == [(event, "done")]
    await outbox.execute("UPDATE outbox_receipts SET created_at = created_at - interval '6 days'")
    assert await purge(outbox.desk, 1) == Purged(receipts=1)


async def test_it_walks_windows_and_stops_where_nothing_is_older(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_kernel.infrastructure.operations.purging.WINDOW_EVENTS", 2)
    for _ in range(5):
        await outbox.receipt(await outbox.event(days_old=9), days_old=9)
    for _ in range(20):
        await outbox.event(days_old=1)
    steps: list[int] = []

    def begin(_: int) -> Any:
        return steps.append

    assert (await purge(outbox.desk, 7, begin)).events == 5
    # Two, two, the last old one with the first young one; what is younger is not looked at.
    assert steps == [2, 2, 2]
    assert await outbox.value("SELECT count(*) FROM outbox_events") == 20


async def test_one_purges_at_a_time_and_the_next_comes_after(outbox: Any) -> None:
    await outbox.event(days_old=9)
    other = await asyncpg.connect(outbox.url)
    statement, arguments = in_schema(PURGE_EVENTS, None), (-1, 10, 7.0, 7.0, None)
    async with other.transaction():
        (row,) = await other.fetch(statement, *arguments)
        assert row["held"]
        assert not (await outbox.desk.fetch_one(PURGE_EVENTS, *arguments))["held"]
    await other.close()
    assert (await outbox.desk.fetch_one(PURGE_EVENTS, *arguments))["held"]


async def test_an_event_that_somebody_holds_is_left_for_the_next_purge(outbox: Any) -> None:
    await outbox.event(days_old=9)
    other = await asyncpg.connect(outbox.url)
    async with other.transaction():
        await other.fetch("SELECT FROM outbox_events FOR UPDATE")
        assert await purge(outbox.desk, 7) == Purged()
    await other.close()
    assert await purge(outbox.desk, 7) == Purged(events=1)


async def test_the_report_says_below_which_position_the_next_need_not_look(outbox: Any) -> None:
    await outbox.event(days_old=9)
    await outbox.event(status="dead", days_old=9)
    row = await outbox.desk.fetch_one(PURGE_EVENTS, -1, 10, 7.0, 7.0, None)
    assert (row["last"], row["kept"], row["over"]) == (2, 2, False)
