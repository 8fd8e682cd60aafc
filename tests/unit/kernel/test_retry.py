"""K7: from the failures so far to the delay before the next attempt, or dead."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel import EXPONENTIAL, TIERED, RetrySchedule


def delays(schedule: RetrySchedule, failures: int) -> list[float | None]:
    return [schedule.delay_after(count, rng=lambda: 0.0) for count in range(failures + 1)]


def test_exponential() -> None:
    assert delays(EXPONENTIAL, 9) == [0, 1, 2, 5, 15, 60, 300, 900, 900, 900]
    assert EXPONENTIAL.delay_after(1_000_000, rng=lambda: 0.0) == 900


def test_tiered() -> None:
    assert delays(TIERED, 11) == [0, 0, 0, 0, 30, 30, 30, 300, 300, 300, None, None]


def test_bounded_has_exponentials_delays_and_an_end() -> None:
    assert delays(RetrySchedule.bounded(3), 4) == [0, 1, 2, None, None]
    assert delays(RetrySchedule.bounded(10), 10)[6:] == [300, 900, 900, 900, None]


def test_dead_at_the_first_failure_still_makes_the_first_attempt() -> None:
    assert delays(RetrySchedule.bounded(1), 1) == [0, None]


@given(st.integers(1, 20), st.floats(0, 1, exclude_max=True))
def test_jitter_only_lengthens_and_by_a_tenth_at_most(failures: int, random: float) -> None:
    bare = EXPONENTIAL.delay_after(failures, rng=lambda: 0.0)
    found = EXPONENTIAL.delay_after(failures, rng=lambda: random)
    assert bare is not None
    assert found is not None
    assert bare <= found <= bare * 1.1


def test_jitter_is_random_by_default_and_can_be_left_out() -> None:
    assert len({EXPONENTIAL.delay_after(7) for _ in range(20)}) > 1
    assert {RetrySchedule((5,), jitter_share=0).delay_after(1) for _ in range(20)} == {5}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"delays_seconds": ()}, "at least one delay"),
        ({"delays_seconds": (1, -1)}, "zero or more finite"),
        ({"delays_seconds": (float("inf"),)}, "zero or more finite"),
        ({"delays_seconds": (float("nan"),)}, "zero or more finite"),
        ({"delays_seconds": (1,), "dead_at": 0}, "dead at failure 1 or later, not 0"),
        ({"delays_seconds": (1,), "jitter_share": 1.5}, "from 0 to 1, not 1.5"),
    ],
)
def test_a_schedule_that_cannot_be_followed_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        RetrySchedule(**arguments)


def test_failures_are_not_negative() -> None:
    with pytest.raises(ValueError, match="counted from 0, not -1"):
        EXPONENTIAL.delay_after(-1)


def test_a_schedule_is_a_value() -> None:
    assert RetrySchedule((1, 2)) == RetrySchedule((1, 2))
    assert len({RetrySchedule((1, 2)), RetrySchedule((1, 2))}) == 1
