"""K7: from the failures so far to the delay before the next attempt, or dead."""

from math import nextafter
from typing import Any

import pytest

from outbox_kernel.kernel import EXPONENTIAL, TIERED, RetrySchedule


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


@pytest.mark.parametrize("random", [0.0, 5e-324, 1e-9, 0.1, 0.5, 2 / 3, 0.9, nextafter(1, 0)])
def test_jitter_only_lengthens_and_by_a_tenth_at_most(random: float) -> None:
    for failures in range(1, 21):
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
        ({"delays_seconds": (1,), "dead_at": 2.5}, "dead at failure 1 or later, not 2.5"),
        ({"delays_seconds": (1,), "dead_at": True}, "dead at failure 1 or later, not True"),
        ({"delays_seconds": ("1",)}, "zero or more finite"),
        ({"delays_seconds": (True,)}, "zero or more finite"),
        ({"delays_seconds": 5}, "takes its delays in a tuple, not 5"),
        ({"delays_seconds": (1,), "jitter_share": 1.5}, "from 0 to 1, not 1.5"),
    ],
)
def test_a_schedule_that_cannot_be_followed_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        RetrySchedule(**arguments)


@pytest.mark.parametrize("failures", [-1, 1.5])
def test_failures_are_counted(failures: Any) -> None:
    with pytest.raises(ValueError, match=f"counted from 0, not {failures}"):
        EXPONENTIAL.delay_after(failures)


def test_a_bound_is_a_whole_number() -> None:
    """K7."""
    bound: Any = 2.5
    with pytest.raises(ValueError, match=r"dead at failure 1 or later, not 2\.5"):
        RetrySchedule.bounded(bound)


def test_a_schedule_is_a_value() -> None:
    assert RetrySchedule((1, 2)) == RetrySchedule((1, 2))
    assert RetrySchedule([1, 2]) == RetrySchedule((1, 2))
    assert len({RetrySchedule([1, 2]), RetrySchedule((1, 2)), RetrySchedule((1, 2))}) == 1
