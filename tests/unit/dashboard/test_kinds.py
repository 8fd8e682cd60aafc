"""What dead letters died of comes back from an address and a form as it was (O3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_kernel.infrastructure.dashboard.kinds import kind_field, kind_of


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_a_kind_is_brought_whole_by_a_field_that_browsers_leave_as_it_is(kind: str) -> None:
    field = kind_field(kind)
    assert field.strip() == field != ""
    assert not set("\r\n") & set(field)
    assert kind_of(field) == kind


def test_what_is_plain_is_written_so() -> None:
    assert kind_field("KeyError: *") == "KeyError: *"
    assert kind_of(None) is None


@pytest.mark.parametrize("typed", ['"', '"\\u0000"', '"half', '"a" b', '"\\ud800"'])
def test_what_somebody_typed_is_taken_as_it_is(typed: str) -> None:
    assert kind_of(typed) == typed
