"""What is written into addresses, forms and bodies is read back as it was, and counted as it is (O3, X3, X5)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contexts.families.events import Email
from outbox_kernel.infrastructure.dashboard.kinds import kind_field, kind_of
from outbox_kernel.infrastructure.dashboard.paging import decoded, encoded
from outbox_kernel.infrastructure.http.limits import JSON_LEVELS_MAX
from tests.refusing import refusal

KEYS = st.lists(st.integers(0, 2**62), min_size=1, max_size=3)
TEXTS = st.text(st.sampled_from('a"\\/[]{},:\u00e4\n'), max_size=5)
VALUES: st.SearchStrategy[Any] = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=150,
)


def size_of(value: Any) -> tuple[int, int]:
    """Values, where an empty list is one and its place another, and levels."""
    if not isinstance(value, dict | list):
        return 0, 0
    members = [*value.values()] if isinstance(value, dict) else value
    inner = [size_of(each) for each in members]
    values = 1 + max(0, len(members) - 1) + sum(number for number, _ in inner)
    return values, 1 + max((levels for _, levels in inner), default=0)


@given(KEYS)
def test_a_page_that_was_written_is_read(keys: list[int]) -> None:
    if keys[0] < 10**18:
        assert decoded(encoded(*keys), len(keys)) == tuple(keys)


@given(st.text())
def test_whatever_else_there_is_is_no_page(text: str) -> None:
    found = decoded(text, 2)
    assert found is None or encoded(*found) == text or text.startswith("0") or ".0" in text


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_a_kind_is_brought_whole_by_a_field_that_browsers_leave_as_it_is(kind: str) -> None:
    field = kind_field(kind)
    assert field.strip() == field != ""
    assert not set("\r\n") & set(field)
    assert kind_of(field) == kind


# Upper case letters, with marks that compose with some of them.
@given(
    st.text(st.characters(categories=["Lu", "Ll", "Mn"]), min_size=1, max_size=4),
    st.text(".\uff0e\u2026", max_size=3),
)
def test_an_address_that_was_read_back_is_the_same(name: str, dots: str) -> None:
    email = Email(f"{name}@example.org{dots}")
    assert Email(email.value) == email


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_what_is_counted_is_what_is_there(value: Any, ascii_only: bool, indent: int | None) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    values, levels = size_of(value)
    for values_max in {1, max(1, values), values + 1, 10_000}:
        expected = (
            "too_many_values" if values >= values_max else "too_deep" if levels > JSON_LEVELS_MAX else None
        )
        assert refusal(body, values_max) == expected
