"""How much a JSON text holds is counted before it is read, and as reading it finds."""

from __future__ import annotations

import json

import pytest

from outbox_kernel.infrastructure.http.limits import JSON_LEVELS_MAX
from tests.refusing import refusal


@pytest.mark.parametrize(("levels", "kind"), [(JSON_LEVELS_MAX, None), (JSON_LEVELS_MAX + 1, "too_deep")])
def test_levels_have_a_limit(levels: int, kind: str | None) -> None:
    assert refusal(b"[" * levels + b"]" * levels, 10_000) == kind
    assert refusal(b'{"a":' * levels + b"0" + b"}" * levels, 10_000) == kind


def test_what_stands_in_a_text_counts_for_nothing() -> None:
    assert refusal(json.dumps("[{,:" * 10_000).encode(), 64) is None
    assert refusal(json.dumps('"[\\' * 10_000).encode(), 64) is None


def test_more_texts_than_values_are_no_json_and_too_many() -> None:
    assert refusal(b'"" ' * 1_000 + b"," * 100, 100) == "too_many_values"
