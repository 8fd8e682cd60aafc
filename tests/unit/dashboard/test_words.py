"""How pages write numbers, times and ids (O3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from outbox_kernel.infrastructure.dashboard import words
from outbox_kernel.infrastructure.dashboard.limits import VALUE_CHARACTERS_MAX

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (None, words.NONE),
        (0, "0 s"),
        (-3, "0 s"),
        (0.0001, "1 ms"),
        (0.34, "340 ms"),
        (4.25, "4.2 s"),
        (60, "1 min"),
        (12 * 60, "12 min"),
        (3.5 * 3600, "3.5 h"),
        (200 * 86400, "200 d"),
    ],
)
def test_a_duration_is_short(seconds: float | None, written: str) -> None:
    assert words.duration(seconds) == written


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "now"), (90, "1.5 min ago"), (-90, "in 1.5 min"), (86_400, "1 d ago")],
)
def test_a_moment_is_relative_and_has_the_exact_one_on_hover(seconds: float, said: str) -> None:
    written = words.ago(NOW - timedelta(seconds=seconds), NOW)
    assert written.striptags() == said
    moment = NOW - timedelta(seconds=seconds)
    assert f'datetime="{moment.isoformat()}"' in written
    assert f'title="{words.exact(moment)}"' in written


def test_a_moment_that_is_none_is_a_dash() -> None:
    assert words.ago(None, NOW).striptags() == words.NONE
    assert words.exact(None) == words.NONE
    assert words.exact(NOW) == "2026-01-31 12:00:00.000 UTC"


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (None, words.NONE),
        (0, "0"),
        (999, "999"),
        (9_999, "9,999"),
        (12_400, "12.4k"),
        (3.1e6, "3.1M"),
        (2e9, "2G"),
    ],
)
def test_a_large_number_is_rounded(number: float | None, written: str) -> None:
    assert words.amount(number) == written


def test_a_number_that_may_be_more_says_so() -> None:
    assert words.at_least(1_000, is_more=True) == "1,000+"
    assert words.at_least(7, is_more=False) == "7"


@pytest.mark.parametrize(
    ("per_second", "written"),
    [
        (None, words.NONE),
        (0, "0 /s"),
        (1_250, "1,250 /s"),
        (12.34, "12.3 /s"),
        (0.5, "30 /min"),
        (0.001, "3.6 /h"),
        (0.00001, "under 0.1 /h"),
    ],
)
def test_a_rate_is_told_in_the_unit_that_shows_it(per_second: float | None, written: str) -> None:
    assert words.rate(per_second) == written


def test_of_an_id_its_end_is_written_and_a_short_one_whole() -> None:
    assert words.short_id(UUID(int=0x1234)) == "…00001234"
    assert words.short_id("order-42") == "order-42"
    assert words.short_id("x" * 10) == "x" * 10


def test_json_is_written_over_lines_escaped_and_cut_where_it_is_too_long() -> None:
    assert words.pretty({"a": "<b>"}) == "{\n  &#34;a&#34;: &#34;&lt;b&gt;&#34;\n}"
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    # Some versions of Python write it, and others cannot.
    assert "`outbox show --json` prints" in words.pretty(deep)
    long = words.pretty({"a": "x" * (VALUE_CHARACTERS_MAX + 1)})
    assert "characters in all" in long
    assert len(long) < VALUE_CHARACTERS_MAX + 200


def test_code_in_a_sentence_is_marked_and_all_of_it_escaped() -> None:
    assert words.marked("run `outbox <relay>`, & wait") == (
        "run <code>outbox &lt;relay&gt;</code>, &amp; wait"
    )
    assert words.marked("one ` alone <i>") == "one ` alone &lt;i&gt;"


def test_a_sentence_begins_with_a_capital_letter_unless_it_begins_with_a_name() -> None:
    assert words.sentence("there is none: ask") == "There is none: ask."
    assert words.sentence("warehouse is paused") == "warehouse is paused."
    assert words.sentence("nothing…") == "nothing…"
    assert words.sentence("Really?") == "Really?"


def test_a_name_breaks_after_its_dots_and_nowhere_else() -> None:
    assert words.dotted("shop.<order>.placed") == "shop.<wbr>&lt;order&gt;.<wbr>placed"
    assert words.dotted("order") == "order"


@pytest.mark.parametrize(
    ("typed", "here"),
    [
        (
            "there is no event 7: `outbox events` lists the newest",
            "there is no event 7: look for it among the events",
        ),
        ("the event is dead, `outbox show 7` tells more", "the event is dead, its page tells more"),
        ("run the relay: `outbox relay`", "run the relay: `outbox relay`"),
    ],
)
def test_what_is_on_a_page_is_not_to_be_typed(typed: str, here: str) -> None:
    assert words.in_a_browser(typed).startswith(here)


def test_an_event_that_is_named_leads_to_it() -> None:
    event = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
    written = words.linked(f"its turn: event {event} is <dead> in `h`", "/ops")
    assert written == (
        f'its turn: event <a href="/ops/events/{event}" title="{event}">…099a8057</a> is &lt;dead&gt; in <code>h</code>'
    )
    assert words.linked("nobody", "") == "nobody"
