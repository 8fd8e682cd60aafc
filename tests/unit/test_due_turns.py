"""Which turns a relay looks at next: what it has heard of first, all there are in a tenth of its time (R4, R13)."""

from __future__ import annotations

import pytest

from outbox_kernel.infrastructure.relay import deliveries
from outbox_kernel.infrastructure.relay.deliveries import DueTurns
from outbox_kernel.infrastructure.relay.limits import REST_SECONDS_MAX

HANDLERS = {"h", "i"}


class Time:
    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(deliveries, "time", found)
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


def test_where_all_is_done_there_is_nothing_to_look_at_unless_more_was_heard_of(turns: DueTurns) -> None:
    """R4: what came while an earlier one was in hand has its turn with the end of that."""
    turns.hear([("h", "1")])
    turns.take_known(1, HANDLERS)
    turns.keep_in_use([("h", "1")])
    turns.hear_of_done([("h", "1"), ("h", "2")])
    assert turns.take_known(2, HANDLERS) == [("h", "1")]
    turns.hear_of_done([("h", "1")])
    assert (turns.has_known, turns.scanning) == (False, True)


def test_too_many_in_use_are_left_to_a_look_at_all(turns: DueTurns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "KNOWN_MAX", 1)
    turns.keep_in_use([("h", "1"), ("h", "2")])
    turns.hear_of_done([("h", "1"), ("h", "2")])
    assert (turns.has_known, turns.scanning) == (False, True)


def test_too_many_to_be_known_are_left_to_a_look_at_all(
    turns: DueTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "KNOWN_MAX", 2)
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


def test_a_look_in_vain_is_followed_by_a_rest_nine_times_as_long(turns: DueTurns, clock: Time) -> None:
    look(turns, clock, seconds=0.01)
    turns.hear([])
    assert turns.rest_seconds == pytest.approx(0.09)
    clock.now += 0.09
    assert turns.rest_seconds == pytest.approx(0.0)


def test_a_rest_has_a_limit(turns: DueTurns, clock: Time) -> None:
    """R3, R10: whatever the answer has waited for, it was not always the server's work."""
    look(turns, clock, seconds=20.0)
    turns.hear([])
    assert turns.rest_seconds == pytest.approx(REST_SECONDS_MAX)


def test_after_a_look_that_found_something_there_is_a_rest_only_while_turns_are_known(
    turns: DueTurns, clock: Time
) -> None:
    """R13: however long it took, there may be more."""
    look(turns, clock, seconds=0.01, found=True)
    turns.hear([("h", "1")])
    assert turns.rest_seconds == pytest.approx(0.09)
    turns.take_known(1, HANDLERS)
    assert turns.rest_seconds == 0.0


def test_a_look_that_is_under_way_does_not_rest(turns: DueTurns, clock: Time) -> None:
    look(turns, clock, seconds=0.5, after={"h": "m"})
    assert turns.rest_seconds == 0.0


def test_who_asks_for_a_look_at_all_does_not_wait_for_a_rest(turns: DueTurns, clock: Time) -> None:
    """R3, R10: a poll, an operator, a takeover, a delivery whose time has come."""
    look(turns, clock, seconds=0.1)
    turns.hear([])
    turns.everywhere = True
    assert turns.rest_seconds == 0.0


def test_who_asks_during_a_look_gets_another_without_a_rest(turns: DueTurns, clock: Time) -> None:
    began = clock.now
    turns.begin_scan()
    turns.everywhere = True
    clock.now += 0.1
    turns.end_scan(began, {}, found=False)
    assert (turns.scanning, turns.rest_seconds) == (True, 0.0)


def test_who_looks_on_begins_a_look_unless_one_is_under_way(turns: DueTurns, clock: Time) -> None:
    look(turns, clock, seconds=1.0, after={"h": "m"})
    turns.look_on()
    assert not turns.everywhere
    look(turns, clock, seconds=1.0)
    turns.look_on()
    assert turns.everywhere
