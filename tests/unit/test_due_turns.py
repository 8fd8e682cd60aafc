"""Which turns a relay looks at next: what it has heard of first, all there are in a tenth of its time (R4, R13)."""

from __future__ import annotations

import pytest

from infrastructure.relay import due_turns
from infrastructure.relay.due_turns import DueTurns

HANDLERS = {"h", "i"}


class Time:
    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(due_turns, "time", found)
    return found


@pytest.fixture
def turns(clock: Time) -> DueTurns:
    """A relay's that has looked at all, and found nothing in no time."""
    found = DueTurns()
    look(found, clock, seconds=0.0)
    return found


def look(
    turns: DueTurns, clock: Time, *, seconds: float, after: dict[str, str] | None = None, found: bool = False
) -> None:
    began = clock.now
    turns.begin_scan()
    clock.now += seconds
    turns.end_scan(began, after or {}, found=found)


def test_a_relay_begins_with_a_look_at_all() -> None:
    assert DueTurns().scanning


def test_what_was_heard_of_is_taken_once_and_in_the_order_in_which_it_was_heard(turns: DueTurns) -> None:
    turns.hear([("h", "1"), ("i", "2"), ("h", "1"), ("h", "3")])
    assert turns.take_known(2, HANDLERS) == [("h", "1"), ("i", "2")]
    assert turns.take_known(2, HANDLERS) == [("h", "3")]
    assert not turns.has_known


def test_what_cannot_be_run_here_now_is_left_to_a_look_at_all(turns: DueTurns) -> None:
    turns.hear([("another", "1"), ("h", "1")])
    assert turns.take_known(2, HANDLERS) == [("h", "1")]
    assert (turns.has_known, turns.scanning) == (False, True)


def test_too_many_to_be_known_are_left_to_a_look_at_all(
    turns: DueTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_turns, "KNOWN_MAX", 2)
    turns.hear([("h", "1"), ("h", "2"), ("h", "3")])
    assert (turns.has_known, turns.scanning) == (False, True)


def test_what_is_heard_while_a_look_goes_on_causes_another(turns: DueTurns, clock: Time) -> None:
    """Its turn may be before the place where the look has come to."""
    turns.hear([])
    look(turns, clock, seconds=0.0, after={"h": "m"})
    turns.hear([("h", "a")])
    look(turns, clock, seconds=0.0)
    assert turns.scanning
    look(turns, clock, seconds=0.0)
    assert not turns.scanning


def test_a_look_goes_on_where_it_was(turns: DueTurns, clock: Time) -> None:
    look(turns, clock, seconds=0.0, after={"h": "m"})
    assert (turns.scanning, turns.begin_scan()) == (True, {"h": "m"})


@pytest.mark.parametrize(
    ("seconds", "found", "after", "rest"),
    [
        (0.01, True, {}, 0.0),
        (0.01, False, {}, 0.09),
        (0.01, False, {"h": "m"}, 0.0),
        (0.5, True, {}, 4.5),
        (0.5, False, {"h": "m"}, 4.5),
    ],
    ids=["useful", "in vain", "on its way", "dear", "dear and on its way"],
)
def test_looks_at_all_that_are_in_vain_or_dear_take_a_tenth_of_the_time(
    turns: DueTurns, clock: Time, seconds: float, found: bool, after: dict[str, str], rest: float
) -> None:
    look(turns, clock, seconds=seconds, found=found, after=after)
    assert turns.rest_seconds == pytest.approx(rest)
    clock.now += rest
    assert turns.rest_seconds == pytest.approx(0.0)


def test_who_looks_on_ends_a_rest_and_begins_a_look_unless_one_is_under_way(
    turns: DueTurns, clock: Time
) -> None:
    look(turns, clock, seconds=1.0, after={"h": "m"})
    turns.look_on()
    assert (turns.rest_seconds, turns.everywhere) == (0.0, False)
    look(turns, clock, seconds=1.0)
    assert not turns.scanning
    turns.look_on()
    assert (turns.rest_seconds, turns.everywhere) == (0.0, True)
