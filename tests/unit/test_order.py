"""What the database does not know yet holds back what was read before it did (R4)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.outbox.delivery import Outcome
from outbox_kernel.infrastructure.relay.order import Order

ROW: Any = SimpleNamespace(ordered_in="order:1")


def order(*, ordered: bool = True) -> Order:
    carried: Any = SimpleNamespace(name="handler", renamed_from="former", ordered=ordered)
    return Order(carried)


def outcome(status: str = "waiting", row: Any = ROW) -> Outcome:
    return Outcome(row, "handler", "order:1", status)


def test_what_is_about_to_be_written_holds_back_every_read() -> None:
    held = order()
    held.hold(outcome())
    assert held.must_wait(ROW, 7)


def test_what_is_written_holds_back_the_reads_that_had_begun() -> None:
    held = order()
    held.hold(outcome())
    held.release(outcome(), 7)
    assert held.must_wait(ROW, 7)
    assert not held.must_wait(ROW, 8)


def test_two_hold_back_until_both_are_written() -> None:
    held = order()
    held.hold(outcome())
    held.hold(outcome("dead"))
    held.release(outcome(), 7)
    assert held.must_wait(ROW, 8)


def test_what_is_let_go_of_takes_nothing_from_a_read_that_is_under_way() -> None:
    """It was told of nothing that was written after it had begun."""
    held = order()
    held.hold(outcome())
    held.release(outcome(), 7)
    held.let_go(7)
    assert held.must_wait(ROW, 7)


def test_what_was_about_to_be_written_and_is_not_holds_back_no_later_read() -> None:
    held = order()
    held.hold(outcome())
    held.let_go(7)
    assert held.must_wait(ROW, 7)
    assert not held.must_wait(ROW, 8)


def test_what_no_read_can_bring_any_more_is_forgotten() -> None:
    held = order()
    held.hold(outcome())
    held.release(outcome(), 7)
    held.forget(6)
    assert held.keys
    held.forget(7)
    assert not held.keys


@pytest.mark.parametrize("status", ["done", "skipped"])
def test_what_is_settled_holds_back_nobody(status: str) -> None:
    held = order()
    held.hold(outcome(status))
    assert not held.must_wait(ROW, 7)


def test_without_an_order_or_an_aggregate_nobody_waits() -> None:
    loose, without = order(ordered=False), order()
    alone: Any = SimpleNamespace(ordered_in=None)
    loose.hold(outcome())
    without.hold(outcome(row=alone))
    assert not loose.must_wait(ROW, 7)
    assert not without.must_wait(alone, 7)


@pytest.mark.parametrize(
    ("columns", "leaves"),
    [
        ({}, False),
        ({"unsettled": ["another"]}, False),
        ({"unsettled": ["another", "handler"]}, True),
        ({"unsettled": ["former"]}, True),
        ({"not_before": "2026-01-01"}, True),
        ({"occurred_at": None}, True),
    ],
)
def test_what_its_read_says_decides_whether_it_is_left(columns: dict[str, Any], leaves: bool) -> None:
    row: Any = {"not_before": None, "occurred_at": "2026-01-01", "unsettled": None, "event_id": uuid4()}
    assert order().must_leave(row | columns) is leaves
