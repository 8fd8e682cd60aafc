"""Purge: what is delivered goes after a while, and a receipt outlives its event (R13)."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import attrs
import pytest

from outbox_kernel.infrastructure.operations.purging import Purged, purge
from outbox_kernel.infrastructure.outbox import purge as purge_module
from outbox_kernel.infrastructure.outbox.sql.retention import PURGE_EVENTS
from tests.waiting import until

AGED = "UPDATE outbox_deliveries SET updated_at = updated_at - interval '8 days'"


TURN = """
SELECT pg_try_advisory_xact_lock(hashtextextended('outbox-kernel purge ' || 'outbox_events'::regclass::oid::text, 0))
"""


async def window(outbox: Any) -> Any:
    """Purge one, of ten."""
    return await outbox.desk.run_one(
        PURGE_EVENTS, after=0, span_max=10, rows_max=10, days=7.0, receipt_days=7.0, is_free=True
    )


async def statuses(outbox: Any) -> list[str]:
    rows = await outbox.rows(
        "SELECT status FROM outbox_events JOIN outbox_status USING (event_id) ORDER BY position"
    )
    return [row["status"] for row in rows]


async def test_only_what_was_delivered_long_ago_goes_with_all_that_belongs_to_it(outbox: Any) -> None:
    await outbox.is_read()
    old = await outbox.failed_event(status="done", days_old=8)
    kept = [
        await outbox.failed_event(status="done", days_old=6),
        await outbox.failed_event(status="dead", days_old=8),
        await outbox.failed_event(status="waiting", days_old=8),
    ]
    for event in (old, *kept):
        await outbox.receipt(event, days_old=8)
    await outbox.execute(AGED)
    assert await purge(outbox.desk, 7) == Purged(events=1, deliveries=1, receipts=1)
    assert await statuses(outbox) == ["delivered", "dead", "open"]
    assert len(await outbox.receipts()) == 3
    assert await outbox.value("SELECT count(*) FROM outbox_deliveries") == 3


async def test_what_somebody_has_not_passed_stays_however_old_it_is(outbox: Any) -> None:
    """R2: at whatever age it is asked to go."""
    await outbox.subscription()
    await outbox.event(days_old=80)
    assert await purge(outbox.desk, 0) == Purged()
    await outbox.passed()
    assert await purge(outbox.desk, 0) == Purged(events=1)


async def test_a_receipt_stays_for_seven_days_even_if_its_event_does_not(outbox: Any) -> None:
    await outbox.is_read()
    event = await outbox.event(days_old=2)
    await outbox.receipt(event, days_old=2)
    assert await purge(outbox.desk, 1) == Purged(events=1)
    assert await outbox.receipts() == [(event, "done")]
    await outbox.execute("UPDATE outbox_receipts SET created_at = created_at - interval '6 days'")
    assert await purge(outbox.desk, 1) == Purged(receipts=1)


async def test_it_walks_windows_and_stops_where_nothing_is_older(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await outbox.is_read()
    monkeypatch.setattr(purge_module, "WINDOW_ROWS", 2)
    for _ in range(5):
        await outbox.receipt(await outbox.event(days_old=9), days_old=9)
    for _ in range(20):
        await outbox.event(days_old=1)
    told: list[int] = []
    steps: list[int] = []

    def begin(total: int) -> Any:
        told.append(total)
        return steps.append

    assert (await purge(outbox.desk, 7, begin)).events == 5
    # Two and two; the last old one stands beside the first young one, and what is younger is not looked at.
    assert (told, steps) == ([25], [2, 2])
    assert await outbox.value("SELECT count(*) FROM outbox_events") == 20


async def test_it_walks_over_stretches_in_which_all_has_gone(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await outbox.is_read()
    monkeypatch.setattr(purge_module, "WINDOW_POSITIONS", 3)
    for _ in range(12):
        await outbox.event(days_old=9)
    await outbox.execute("DELETE FROM outbox_events WHERE position BETWEEN 2 AND 11")
    assert await purge(outbox.desk, 7) == Purged(events=2)


async def test_an_empty_outbox_is_purged_at_once(outbox: Any) -> None:
    assert await purge(outbox.desk, 0) == Purged()


async def test_what_a_queue_brings_again_at_this_moment_stays_and_the_rest_goes(outbox: Any) -> None:
    """T3: the purge cannot see the arrival when it begins."""
    await outbox.is_read()
    brought, _ = [await outbox.event(days_old=9) for _ in range(2)]
    other = await asyncpg.connect(outbox.url)

    async def is_waited_for() -> bool:
        waits = "SELECT pg_backend_pid() = ANY (pg_blocking_pids($1))"
        return bool(await other.fetchval(waits, outbox.desk.connection.get_server_pid()))

    async with other.transaction():
        await other.execute(
            "INSERT INTO outbox_arrivals (position, event_id, event_type, source) VALUES (9, $1, 'bank.paid', 'few')",
            brought,
        )
        purged = asyncio.create_task(purge(outbox.desk, 7))
        await until(is_waited_for)
    assert await purged == Purged(events=1)
    assert await outbox.value("SELECT event_id FROM outbox_events") == brought
    await other.close()


async def test_what_a_table_of_somebodys_own_refers_to_is_told_of(outbox: Any) -> None:
    """R13: rather than waited for without end."""
    await outbox.is_read()
    await outbox.event(days_old=9)
    await outbox.execute("CREATE TABLE theirs AS SELECT event_id FROM outbox_events")
    await outbox.execute("ALTER TABLE theirs ADD FOREIGN KEY (event_id) REFERENCES outbox_events (event_id)")
    with pytest.raises(asyncpg.ForeignKeyViolationError, match="theirs_event_id_fkey"):
        await purge(outbox.desk, 7)
    await outbox.execute("DROP TABLE theirs")


async def test_one_purges_at_a_time_and_the_next_comes_after(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await outbox.is_read()
    await outbox.event(days_old=9)
    turned_away = asyncio.Event()
    wait = asyncio.sleep

    async def told(seconds: float) -> None:
        turned_away.set()
        await wait(seconds)

    monkeypatch.setattr("outbox_kernel.infrastructure.operations.purging.asyncio.sleep", told)
    other = await asyncpg.connect(outbox.url)
    async with other.transaction():
        await other.fetch(TURN)
        purged = asyncio.create_task(purge(outbox.desk, 7))
        await turned_away.wait()
        assert not purged.done()
    await other.close()
    assert await purged == Purged(events=1)


async def test_nobody_purges_while_an_operator_has_deliveries_written(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or an event might go while it is replayed, and its delivery would keep others waiting behind it for ever."""
    event = await outbox.event(days_old=9)
    turned_away = asyncio.Event()
    wait = asyncio.sleep

    async def told(seconds: float) -> None:
        turned_away.set()
        await wait(seconds)

    monkeypatch.setattr("outbox_kernel.infrastructure.operations.purging.asyncio.sleep", told)
    operator = attrs.evolve(outbox.desk, connection=await asyncpg.connect(outbox.url))
    purged = None

    async def work() -> None:
        nonlocal purged
        purged = asyncio.create_task(purge(outbox.desk, 7))
        await turned_away.wait()
        await operator.connection.execute(WAITS, event)

    await operator.in_turn(work)
    await operator.connection.close()
    assert purged is not None
    assert await purged == Purged()


WAITS = """
INSERT INTO outbox_deliveries (event_id, position, handler, order_key) VALUES ($1, 1, 'h', 'x')
"""


async def test_a_purge_keeps_others_from_it(outbox: Any) -> None:
    await outbox.event(days_old=9)
    other = await asyncpg.connect(outbox.url)
    async with outbox.desk.connection.transaction():
        assert (await window(outbox))["held"]
        assert not await other.fetchval(TURN)
    assert await other.fetchval(TURN)
    await other.close()


async def test_the_report_says_what_is_old_and_stays(outbox: Any) -> None:
    await outbox.is_read()
    await outbox.event(days_old=9)
    await outbox.failed_event(days_old=9)
    await outbox.event(days_old=9)
    row = await window(outbox)
    assert (row["events"], row["last"], row["kept"], row["over"]) == (2, 3, 2, True)
