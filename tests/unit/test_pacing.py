"""Runs of a handler with a rate begin one after the other, spaced evenly (R16)."""

from __future__ import annotations

import pytest

from outbox_kernel.infrastructure.relay import rate
from outbox_kernel.infrastructure.relay.rate import Bounds, Pacer
from outbox_kernel.infrastructure.relay.settings import RelaySettings
from outbox_kernel.kernel.handlers import HandlerRegistration
from outbox_kernel.kernel.rates import interval_seconds


class Clock:
    """Stands still until it is moved."""

    now: float = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(rate, "time", clock)
    return clock


def begun_within(clock: Clock, pacer: Pacer, seconds: float, *, late: float = 0.0) -> int:
    """How many begin, if each begins as soon as it may and a timer is so late."""
    until, count = clock.now + seconds, 0
    while clock.now < until:
        if rest := pacer.rest_seconds():
            clock.now += rest + late
        else:
            pacer.begin()
            count += 1
    return count


@pytest.mark.parametrize(
    ("rate", "interval"), [("100/s", 0.01), ("1/s", 1.0), ("30/min", 2.0), ("500/h", 7.2), ("1/h", 3600.0)]
)
def test_a_rate_says_how_long_after_the_other_each_may_begin(rate: str, interval: float) -> None:
    assert interval_seconds(rate) == pytest.approx(interval)


@pytest.mark.parametrize("rate", [None, 5, "", "5", "5/d", "0/s", "-1/s", "1.5/s", "fast", "5 /s", "٣/s"])
def test_what_is_no_rate_is_none(rate: object) -> None:
    assert interval_seconds(rate) is None


def test_the_first_may_begin_at_once_and_the_next_after_the_interval(clock: Clock) -> None:
    pacer = Pacer(0.5)
    assert pacer.rest_seconds() == 0
    pacer.begin()
    assert 0.48 < pacer.rest_seconds() <= 0.5
    clock.now += 0.5
    assert pacer.rest_seconds() == 0


def test_a_while_without_events_saves_nothing_up(clock: Clock) -> None:
    pacer = Pacer(0.1)
    assert begun_within(clock, pacer, 1.0) in (10, 11)
    clock.now += 60
    assert begun_within(clock, pacer, 1.0) in (10, 11)


def test_a_timer_that_is_late_costs_no_throughput_and_breaks_no_bound(clock: Clock) -> None:
    assert 990 <= begun_within(clock, Pacer(0.01), 10.0, late=0.001) <= 1_001


def test_what_is_later_than_a_timer_is_lost_for_good(clock: Clock) -> None:
    """As a loop that stood still: to make up for it would break the bound."""
    pacer = Pacer(0.01)
    begun_within(clock, pacer, 1.0)
    clock.now += 0.5
    assert begun_within(clock, pacer, 0.5) <= 52


@pytest.mark.parametrize(
    ("options", "workers_max", "batch_max"),
    [
        ({}, 100, 1_000),
        ({"concurrency": 4}, 4, 16),
        ({"concurrency": 500}, 500, 1_000),
        ({"rate": "50/s"}, 100, 50),
        ({"rate": "30/min"}, 100, 1),
        ({"concurrency": 2, "rate": "50/s"}, 2, 8),
        ({"batch": 200}, 1, 1_000),
        ({"batch": 5_000}, 1, 5_000),
        ({"batch": 200, "concurrency": 2}, 2, 1_000),
        ({"batch": 20, "rate": "2/s"}, 1, 40),
    ],
)
def test_little_is_in_hand_of_what_has_a_bound(
    options: dict[str, object], workers_max: int, batch_max: int
) -> None:
    """Its place is written down once what was read with it is done."""
    bounds = Bounds.of(HandlerRegistration("h", object, (), **options), RelaySettings())  # type: ignore[arg-type]
    assert (bounds.workers_max, bounds.batch_max) == (workers_max, batch_max)
