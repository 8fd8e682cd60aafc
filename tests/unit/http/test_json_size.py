"""How much a JSON text holds is counted before it is read, and as reading it finds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_kernel.infrastructure.http.json_size import check_size
from outbox_kernel.infrastructure.http.limits import JSON_LEVELS_MAX
from outbox_kernel.infrastructure.http.problems import Refused

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


def refusal(body: bytes, values_max: int) -> str | None:
    try:
        check_size(body, values_max)
    except Refused as refused:
        return refused.problem.kind
    return None


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_what_is_counted_is_what_is_there(value: Any, ascii_only: bool, indent: int | None) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    values, levels = size_of(value)
    for values_max in {1, max(1, values), values + 1, 10_000}:
        expected = (
            "too_many_values" if values >= values_max else "too_deep" if levels > JSON_LEVELS_MAX else None
        )
        assert refusal(body, values_max) == expected


@pytest.mark.parametrize(("levels", "kind"), [(JSON_LEVELS_MAX, None), (JSON_LEVELS_MAX + 1, "too_deep")])
def test_levels_have_a_limit(levels: int, kind: str | None) -> None:
    assert refusal(b"[" * levels + b"]" * levels, 10_000) == kind
    assert refusal(b'{"a":' * levels + b"0" + b"}" * levels, 10_000) == kind


def test_what_stands_in_a_text_counts_for_nothing() -> None:
    assert refusal(json.dumps("[{,:" * 10_000).encode(), 64) is None
    assert refusal(json.dumps('"[\\' * 10_000).encode(), 64) is None


def test_more_texts_than_values_are_no_json_and_too_many() -> None:
    assert refusal(b'"" ' * 1_000 + b"," * 100, 100) == "too_many_values"
