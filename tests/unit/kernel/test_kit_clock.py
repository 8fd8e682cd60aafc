"""K12: a clock that stands still, and ids that are the same in every run."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from outbox_kernel.kernel.clock import new_id, now
from outbox_kernel.kernel.testing import FrozenClock, using_clock


def test_it_stands_still_until_it_is_told_to_move() -> None:
    with using_clock(FrozenClock()) as clock:
        start = now()
        assert now() == start
        assert clock.advance(90) == start + timedelta(seconds=90) == now()
        assert clock.advance(timedelta(days=1)) == start + timedelta(days=1, seconds=90)
        assert clock.set(start) == now() == start


def test_ids_are_the_same_in_every_run_and_ascend() -> None:
    first, second = FrozenClock(), FrozenClock()
    ids = [first.new_id() for _ in range(3)]
    assert ids == [second.new_id() for _ in range(3)]
    first.advance(1)
    ids.append(first.new_id())
    first.advance(-3600)
    ids.append(first.new_id())
    assert ids == sorted(set(ids))
    assert {each.version for each in ids} == {7}
    assert FrozenClock(seed=1).new_id() not in ids


def test_it_is_in_use_inside_the_block_alone() -> None:
    clock = FrozenClock()
    with using_clock(clock):
        assert new_id() == FrozenClock().new_id()
    assert now() != clock.now()


def test_moments_are_aware_and_told_in_utc() -> None:
    east = datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=3)))
    assert FrozenClock(east).now() == datetime(2026, 1, 2, tzinfo=UTC)
    assert FrozenClock(east).now().tzinfo is UTC
    with pytest.raises(ValueError, match="give it a time zone"):
        FrozenClock(datetime(2026, 1, 2))  # noqa: DTZ001
