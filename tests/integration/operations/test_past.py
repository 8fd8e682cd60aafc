"""How things went is read from the progress that relays have left (O3)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outbox_kernel.infrastructure.operations.series import latencies, series
from tests.integration.operations.conftest import HANDLER, Outbox

HOUR = timedelta(hours=1)
# A minute, as the steps of an hour are.
PROGRESS = """
INSERT INTO outbox_progress (reader, number, position, server, snapshot, recorded_at, events)
SELECT reader, $2, $3, 1, pg_current_snapshot(), clock_timestamp() - $4::float8 * interval '1 minute', $5
FROM outbox_cursors WHERE subscription = $1 LIMIT 1
"""


async def progress(outbox: Outbox, number: int, position: int, minutes: float, events: int) -> None:
    await outbox.execute(PROGRESS, HANDLER, number, position, minutes, events)


async def begun(outbox: Outbox, minutes: float = 600) -> None:
    """Subscribe that long ago."""
    await outbox.subscription()
    await outbox.execute(
        "UPDATE outbox_progress SET recorded_at = clock_timestamp() - $1::float8 * interval '1 minute'",
        minutes,
    )


async def test_what_was_passed_stands_in_the_step_in_which_it_was(outbox: Outbox) -> None:
    await begun(outbox)
    await progress(outbox, 1, 5, 30.5, 5)
    await progress(outbox, 2, 9, 10.5, 12)
    [found] = await series(outbox.desk, HOUR)
    assert found.name == HANDLER
    first, second = await outbox.rows(
        "SELECT recorded_at FROM outbox_progress WHERE number > 0 ORDER BY number"
    )
    following = [
        next(step.at for step in found.steps if step.at >= recorded_at) for (recorded_at,) in (first, second)
    ]
    assert [(step.at, step.passed) for step in found.steps if step.passed] == [
        (following[0], 5),
        (following[1], 7),
    ]


async def test_lag_is_the_age_of_the_first_event_that_was_not_passed(outbox: Outbox) -> None:
    await begun(outbox)
    await outbox.event(days_old=40 / 1440)
    await progress(outbox, 1, 1, 20.5, 1)
    [found] = await series(outbox.desk, HOUR)
    lags = [round((lag or 0) / 60) for lag in found.lags]
    assert lags[18] == 0  # before it was stored
    assert lags[29] == pytest.approx(10, abs=1)
    assert lags[38] == pytest.approx(19, abs=1)
    assert lags[45:] == [0] * 15


async def test_a_subscription_that_began_within_the_window_has_no_lag_before(outbox: Outbox) -> None:
    await begun(outbox, 30.5)
    [found] = await series(outbox.desk, HOUR)
    assert found.lags[:29] == [None] * 29
    assert found.lags[31:] == [0.0] * 29


async def test_a_reader_that_cursors_went_with_before_counts_for_its_time(outbox: Outbox) -> None:
    await begun(outbox)
    await progress(outbox, 1, 5, 30.5, 5)
    await outbox.execute(
        """
        INSERT INTO outbox_cursors_past (subscription, shard, reader, first_number, last_number, until)
        SELECT subscription, shard, reader, 0, 1, clock_timestamp() - interval '25 minutes' FROM outbox_cursors
        """
    )
    await outbox.execute("UPDATE outbox_cursors SET reader = gen_random_uuid()")
    await outbox.execute("UPDATE outbox_cursors SET reader = (SELECT reader FROM outbox_cursors LIMIT 1)")
    await progress(outbox, 0, 5, 25, 0)
    await progress(outbox, 1, 7, 10.5, 2)
    [found] = await series(outbox.desk, HOUR, HANDLER)
    assert [step.passed for step in found.steps if step.passed] == [5, 2]
    assert None not in found.lags


async def test_only_who_is_asked_for_is_told_of(outbox: Outbox) -> None:
    await outbox.subscription("bank.A")
    await outbox.subscription("bank.B")
    assert [each.name for each in await series(outbox.desk, HOUR)] == ["bank.A", "bank.B"]
    assert [each.name for each in await series(outbox.desk, HOUR, "bank.B")] == ["bank.B"]
    assert await series(outbox.desk, HOUR, "bank.C") == []


async def test_latency_is_from_the_commit_until_it_was_passed(outbox: Outbox) -> None:
    await begun(outbox)
    for minutes in (50, 40, 30):
        await outbox.event(days_old=minutes / 1440)
    await outbox.event(event_type="bank.other", days_old=35 / 1440)
    await progress(outbox, 1, 1, 48, 1)
    await progress(outbox, 2, 2, 36, 2)
    await progress(outbox, 3, 4, 20, 3)
    [found] = (await latencies(outbox.desk)).values()
    assert (found.name, found.events) == (HANDLER, 3)
    assert found.p50_seconds == pytest.approx(4 * 60, abs=2)
    assert found.p95_seconds == pytest.approx(9.4 * 60, abs=4)


async def test_of_who_has_passed_nothing_nothing_is_known(outbox: Outbox) -> None:
    await outbox.event()
    await begun(outbox)
    await outbox.event()
    assert await latencies(outbox.desk) == {}
    assert await latencies(outbox.desk, "bank.Nobody") == {}
