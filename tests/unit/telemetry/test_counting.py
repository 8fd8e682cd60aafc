"""What is counted of runs, and what a sample of them stands for (O4)."""

from __future__ import annotations

import time
from itertools import accumulate
from typing import Any

import pytest

from outbox_kernel.infrastructure.telemetry.counting import (
    OTHER_ERRORS,
    Histogram,
    RequestCounts,
    ServerClock,
)
from outbox_kernel.infrastructure.telemetry.instruments import BOUNDS_SECONDS
from outbox_kernel.infrastructure.telemetry.limits import BEST_SECONDS_MAX, ERROR_TYPES_MAX, TIMED_OF_MAX
from tests.unit.telemetry.runs import Ended, Over, clock, counts, row

MICROSECOND = 1e-6


def total(histogram: Histogram) -> int:
    return sum(histogram.counts)


def at_least(histogram: Histogram, seconds: float) -> int:
    """How many took longer than the bound nearest below."""
    return sum(
        count
        for bound, count in zip((0.0, *BOUNDS_SECONDS), histogram.counts, strict=True)
        if bound >= seconds
    )


def test_buckets_hold_what_took_up_to_their_bound() -> None:
    histogram = Histogram()
    for seconds in (0.0001, 0.00011, 1e5):
        histogram.add(seconds)
    assert histogram.counts[:2] == [1, 1]
    assert histogram.counts[-1] == 1
    assert histogram.seconds == pytest.approx(1e5 + 0.00021)


def test_bounds_are_three_to_a_decade() -> None:
    assert BOUNDS_SECONDS[:4] == (0.0001, 0.00025, 0.0005, 0.001)
    assert BOUNDS_SECONDS[-1] == 1e4
    assert [*BOUNDS_SECONDS] == sorted(BOUNDS_SECONDS)


def test_runs_that_are_apart_are_timed_each() -> None:
    found = counts()
    for seconds in (0.3, 0.03, 3.0):
        found.count(Over(started=time.monotonic() - seconds), Ended())
        found._timed_at -= 1.0  # noqa: SLF001 - a second goes by
    assert total(found.done) == 3
    assert found.done.seconds == pytest.approx(3.33, abs=0.05)
    assert at_least(found.done, 2.5) == 1


def test_under_load_one_of_many_is_timed_and_counts_for_all() -> None:
    found = counts()
    for _ in range(10_000):
        found.count(Over(started=time.monotonic() - 2.0), Ended())
    assert found._of == TIMED_OF_MAX  # noqa: SLF001 - or each was timed after all
    assert total(found.done) == 10_000
    assert found.done.seconds == pytest.approx(20_000, rel=0.01)


def test_whoever_asks_in_the_midst_of_a_lot_is_told_of_each_run() -> None:
    found = counts()
    for number in range(1_000):
        found.count(Over(), Ended())
        if number % 7 == 0:
            assert total(found.done) == number + 1


def test_what_was_slow_is_timed_always_and_stands_for_itself() -> None:
    found = counts()
    for number in range(1_000):
        slow = number % 100 == 7
        found.count(Over(started=time.monotonic() - (30.0 if slow else 0.0), detached=slow), Ended())
    assert total(found.done) == 1_000
    assert at_least(found.done, 10.0) == 10


def test_what_was_told_is_never_taken_back() -> None:
    """O4: a count that falls is a restart to Prometheus, which counts all of it once more."""
    found, now = counts(), time.monotonic()
    before = [found.done, found.waits]
    for number in range(TIMED_OF_MAX * 4):
        # Each lot is unlike the one before it: what its runs were taken for at first, they were not.
        quick = number // TIMED_OF_MAX % 2 == 0
        started = time.monotonic() - (0.0 if quick else 0.01)
        found.count(Over(row(created=now - (9.0 if quick else 0.5)), started), Ended())
        after = [found.done, found.waits] if number % 5 == 0 else before
        for was, told in zip(before, after, strict=True):
            assert all(a <= b for a, b in zip(accumulate(was.counts), accumulate(told.counts), strict=True))
            assert was.seconds <= told.seconds
        before = after
    assert total(found.done) == total(found.waits) == TIMED_OF_MAX * 4


def test_what_comes_after_a_look_is_timed_by_itself() -> None:
    """O4: or a lull after a rush would be told by how the rush was."""
    found = counts()
    for _ in range(TIMED_OF_MAX + 3):
        found.count(Over(), Ended())
    assert total(found.done) == TIMED_OF_MAX + 3
    found.count(Over(started=time.monotonic() - 5.0), Ended())
    assert at_least(found.done, 2.5) == 1


def test_failures_are_told_apart_by_what_became_of_them_and_by_their_error() -> None:
    found = counts()
    for verdict in (
        Ended("waiting", "ValueError: no tea"),
        Ended("waiting", "ValueError: no milk"),
        Ended("dead", "Reject: never"),
        Ended("split", "KeyError: 'x'"),
        Ended("dead", "exchange 'a' has no queue for 'b'"),
        Ended("dead", None),
    ):
        found.count(Over(), verdict)
    assert {kind: total(histogram) for kind, histogram in found.failed.items()} == {
        ("failed", "ValueError"): 2,
        ("dead", "Reject"): 1,
        ("split", "KeyError"): 1,
        ("dead", OTHER_ERRORS): 2,
    }
    assert total(found.done) == 0


def test_more_kinds_of_errors_than_there_is_room_for_go_together() -> None:
    found = counts()
    for number in range(2 * ERROR_TYPES_MAX):
        found.count(Over(), Ended("waiting", f"Error{number}: no"))
    assert len(found.failed) == ERROR_TYPES_MAX + 1
    assert total(found.failed["failed", OTHER_ERRORS]) == ERROR_TYPES_MAX


def test_a_batch_is_one_run_over_many_events() -> None:
    found = counts()
    found.count(Over(rows=[row(), row(), row()]), Ended())
    assert (total(found.done), found.more, total(found.waits)) == (1, 2, 3)


# --- how long events waited ---------------------------------------------------------------------------


def test_an_event_has_waited_by_the_servers_clock_however_ours_is_set() -> None:
    """O4: rows are stamped by the server."""
    found = clock(server_seconds=8e8, at=1_000.0)
    assert found.waited_seconds(row(created=8e8 - 3.5), 1_000.0) == pytest.approx(3.5, abs=MICROSECOND)
    assert found.waited_seconds(row(created=8e8 + 9.0), 1_010.0) == pytest.approx(1.0, abs=MICROSECOND)


def test_who_is_said_to_come_from_the_future_has_not_waited() -> None:
    found = clock(server_seconds=8e8, at=1_000.0)
    assert found.waited_seconds(row(created=8e8 + 0.2), 1_000.0) == 0.0


@pytest.mark.parametrize("odd", [{"created": None}, {"not_before": "a moment"}])
def test_what_cannot_be_read_and_what_is_for_later_has_no_such_time(odd: dict[str, Any]) -> None:
    assert clock(server_seconds=0, at=0).waited_seconds(row(**odd), 0.0) is None
    assert ServerClock().waited_seconds(row(), 0.0) is None


def test_the_quickest_answer_says_best_what_the_servers_clock_shows() -> None:
    found = ServerClock()
    found.note(10.0, 110.0, 10.2)
    assert found.offset == pytest.approx(99.9)
    # The middle of the call is where it is taken to have looked: a slow answer would be wrong by half of it.
    found.note(20.0, 120.0, 24.0)
    assert found.offset == pytest.approx(99.9)
    found.note(30.0, 130.05, 30.1)
    assert found.offset == pytest.approx(100.0)
    # Not quite as quick, but newer.
    found.note(31.0, 131.07, 31.12)
    assert found.offset == pytest.approx(100.01)


def test_the_servers_clock_may_be_set_anew() -> None:
    found = clock(server_seconds=100.0, at=0.0)
    later = 2 * BEST_SECONDS_MAX
    found.note(later, 500.0, later + 1.0)
    assert found.offset == pytest.approx(500.0 - later - 0.5)


def test_only_an_events_first_run_tells_how_long_it_waited() -> None:
    found = counts()
    now = time.monotonic()
    found.count(Over(row(created=now - 5.0), now), Ended("waiting", "ValueError: no"))
    found.count(Over(row(created=now - 5.0), now, attempts=1), Ended())
    assert total(found.waits) == 1
    assert found.waits.seconds == pytest.approx(5.0, abs=0.01)


def test_under_load_each_event_has_waited() -> None:
    found, now = counts(), time.monotonic()
    for _ in range(TIMED_OF_MAX * 10 + 3):
        found.count(Over(row(created=now - 5.0), now), Ended())
    assert total(found.waits) == TIMED_OF_MAX * 10 + 3


# --- requests -----------------------------------------------------------------------------------------


def test_requests_are_counted_by_what_was_asked_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    found = RequestCounts()
    for code in (200, 200, 404):
        found.note("GET", "/accounts/{id}", code, "http", 0.1)
    assert {kind[2]: total(each) for kind, each in found.by_kind.items()} == {"200": 2, "404": 1}
    monkeypatch.setattr(RequestCounts, "KINDS_MAX", 2)
    found.note("GET", "/other", 200, "http", 0.1)
    found.note("GET", "/accounts/{id}", 200, "http", 0.1)
    assert len(found.by_kind) == 2
