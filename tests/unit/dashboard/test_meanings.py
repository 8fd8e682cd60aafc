"""Each word on a badge has a sentence that says what it means (O3)."""

from __future__ import annotations

import pytest

from outbox_kernel.infrastructure.dashboard.meanings import GROUPS, meaning
from outbox_kernel.infrastructure.outbox.views import EVENT_STATES


@pytest.mark.parametrize(
    "word",
    [
        *EVENT_STATES,
        *("waiting", "retrying", "leased", "done", "skipped", "passed", "began later"),
        *(
            "delivering",
            "dead letters",
            "unread",
            "not carried",
            "stands still",
            "paused",
            "retired",
            "unknown",
        ),
        *("live", "vanished"),
    ],
)
def test_each_state_means_something(word: str) -> None:
    assert meaning(word).endswith(".")


def test_a_word_that_says_it_all_needs_no_sentence() -> None:
    assert meaning("fail") == ""


def test_no_word_means_two_things() -> None:
    words = [word for each in GROUPS.values() for word in each]
    assert len(words) == len(set(words))
