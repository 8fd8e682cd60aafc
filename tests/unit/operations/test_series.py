"""What was passed is a difference of running totals, step by step (O3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from outbox_kernel.infrastructure.operations.limits import SERIES_STEPS
from outbox_kernel.infrastructure.operations.series import Series, moments, steps, together

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def totals(*passed: int | None) -> list[dict[str, object]]:
    return [
        {"at": NOW + timedelta(seconds=number), "passed": each, "lag_seconds": float(number)}
        for number, each in enumerate(passed)
    ]


def test_moments_go_from_the_windows_beginning_to_its_end() -> None:
    found = moments(NOW, timedelta(hours=1))
    assert len(found) == SERIES_STEPS + 1
    assert (found[0], found[-1]) == (NOW - timedelta(hours=1), NOW)
    assert found[1] - found[0] == timedelta(minutes=1)


def test_history_stands_still_while_time_goes_on() -> None:
    window = timedelta(hours=24)
    now, later = (moments(NOW + timedelta(minutes=each), window) for each in (5, 20))
    assert now[:-1] == later[:-1]
    assert later[-1] == NOW + timedelta(minutes=20)
    for passed in range(0, 1_440, 7):
        found = moments(NOW + timedelta(minutes=passed, microseconds=1), window)
        lengths = [after - before for before, after in pairwise(found)]
        assert {*lengths[:-1]} == {timedelta(minutes=24)}
        assert timedelta(minutes=24) <= lengths[-1] < timedelta(minutes=48)


def test_a_step_is_what_came_since_the_one_before() -> None:
    assert [step.passed for step in steps(totals(None, None, 3, 3, 10))] == [0, 3, 0, 7]


def test_a_reader_that_is_forgotten_takes_nothing_away() -> None:
    assert [step.passed for step in steps(totals(100, 40, 45))] == [0, 5]


def test_a_rate_is_by_the_second() -> None:
    series = Series("a", steps(totals(0, 2, 2)))
    assert series.rates == [2.0, 0.0]
    assert series.lags == [1.0, 2.0]


def test_together_rates_add_up_and_the_latest_is_the_lag() -> None:
    one = Series("a", steps(totals(0, 1, 3)))
    other = Series("b", steps([{**row, "lag_seconds": None} for row in totals(0, 5, 5)]))
    assert together([one, other]) == ([6.0, 2.0], [1.0, 2.0])
    assert together([other])[1] == [None, None]
    assert together([]) == ([], [])
