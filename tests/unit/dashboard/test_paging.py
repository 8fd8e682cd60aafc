"""Where a page begins stands in its address, and what was never written there is none (O3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from outbox_kernel.infrastructure.dashboard.paging import decoded, encoded, place_of
from outbox_kernel.infrastructure.dashboard.security import Refused

KEYS = st.lists(st.integers(0, 2**62), min_size=1, max_size=3)


@given(KEYS)
def test_what_was_written_is_read(keys: list[int]) -> None:
    if keys[0] < 10**18:
        assert decoded(encoded(*keys), len(keys)) == tuple(keys)


@given(st.text())
def test_whatever_else_there_is_is_no_page(text: str) -> None:
    found = decoded(text, 2)
    assert found is None or encoded(*found) == text or text.startswith("0") or ".0" in text


@pytest.mark.parametrize("text", ["", "x", "1.", "1.2", "-1", "1" * 40, "٣", "1 ", "9" * 19])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    assert decoded(text, 1) is None


def asked(query: str) -> Request:
    return Request({"type": "http", "query_string": query.encode(), "headers": []})


def test_a_request_says_where_its_page_begins_or_begins_at_the_beginning() -> None:
    assert place_of(asked("from=12.7"), 2) == (12, 7)
    assert place_of(asked("from=")) is None
    assert place_of(asked("")) is None
    with pytest.raises(Refused, match="there is no such page"):
        place_of(asked("from=12.7"))
