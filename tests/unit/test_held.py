"""What the database does not know yet holds back what was read before it did (R4)."""

from __future__ import annotations

from outbox_kernel.infrastructure.relay.order import Held

KEY = "order:1"


def test_what_is_about_to_be_written_holds_back_every_read() -> None:
    held = Held()
    held.hold(KEY)
    assert held.holds(KEY, 7)


def test_what_is_written_holds_back_the_reads_that_had_begun() -> None:
    held = Held()
    held.hold(KEY)
    held.release(KEY, 7)
    assert held.holds(KEY, 7)
    assert not held.holds(KEY, 8)


def test_what_is_let_go_of_takes_nothing_from_a_read_that_is_under_way() -> None:
    """It was told of nothing that was written after it had begun."""
    held = Held()
    held.hold(KEY)
    held.release(KEY, 7)
    held.let_go(7)
    assert held.holds(KEY, 7)


def test_what_was_about_to_be_written_and_is_not_holds_back_no_later_read() -> None:
    held = Held()
    held.hold(KEY)
    held.let_go(7)
    assert held.holds(KEY, 7)
    assert not held.holds(KEY, 8)


def test_what_no_read_can_bring_any_more_is_forgotten() -> None:
    held = Held()
    held.hold(KEY)
    held.release(KEY, 7)
    held.forget(6)
    assert held.keys
    held.forget(7)
    assert not held.keys
