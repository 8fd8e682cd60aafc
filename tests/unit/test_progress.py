"""When a place is written down: a few times a second, and at once where nothing is left to wait for (R2b)."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.relay.cursor import Place, Reader, Server
from outbox_kernel.infrastructure.relay.limits import BURST_EVENTS, IDLE_SECONDS, WRITE_SECONDS
from outbox_kernel.infrastructure.relay.progress import Progress

PLACE = Place(10, "100:100:", Server(1, 0))


def rest_seconds(*batches: tuple[int, int], is_at_head: bool = True) -> float | None:
    """How long a place rests that was just written down; of each batch its events, and how many are open."""
    reader = Reader(uuid4(), "h", frozenset(range(32)), PLACE, is_at_head=is_at_head)
    for events, still_open in batches:
        batch = reader.begin(1, PLACE)
        batch.positions, batch.open = [*range(events)], still_open
    log: Any = None
    subscribers: Any = {"h": SimpleNamespace(readers=[reader])}
    return Progress(log, subscribers, written_at=time.monotonic()).rest_seconds()


def test_the_end_of_a_burst_is_written_down_at_once() -> None:
    assert rest_seconds((BURST_EVENTS, 0)) == 0
    assert rest_seconds((BURST_EVENTS - 1, 0), (1, 0)) == 0


@pytest.mark.parametrize(
    ("batches", "is_at_head"),
    [([(BURST_EVENTS - 1, 0)], True), ([(BURST_EVENTS, 0), (1, 1)], True), ([(BURST_EVENTS, 0)], False)],
    ids=["a few", "more in hand", "more in the log"],
)
def test_what_goes_on_is_written_down_a_few_times_a_second(
    batches: list[tuple[int, int]], is_at_head: bool
) -> None:
    rest = rest_seconds(*batches, is_at_head=is_at_head)
    assert rest is not None
    assert WRITE_SECONDS / 2 < rest <= WRITE_SECONDS


def test_what_was_for_others_is_written_down_now_and_then() -> None:
    rest = rest_seconds((0, 0))
    assert rest is not None
    assert WRITE_SECONDS < rest <= IDLE_SECONDS


def test_nothing_is_due_while_the_first_is_not_done() -> None:
    assert rest_seconds((1, 1), (BURST_EVENTS, 0)) is None
