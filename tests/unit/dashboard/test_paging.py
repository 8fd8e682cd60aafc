"""Where a page begins stands in its address, and what was never written there is none (O3)."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from outbox_kernel.infrastructure.dashboard.paging import decoded, place_of
from outbox_kernel.infrastructure.dashboard.security import Refused


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
