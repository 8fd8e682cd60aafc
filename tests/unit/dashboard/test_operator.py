"""Who asks has a name and rights, and without the right to look none of the others (O3)."""

from __future__ import annotations

import pytest

from outbox_kernel.infrastructure.dashboard import ALL_RIGHTS, Operator, Right
from outbox_kernel.infrastructure.errors import ArgumentRefused


def test_whoever_is_let_in_may_look_and_nothing_else() -> None:
    ada = Operator("ada")
    assert [right for right in Right if ada.may(right)] == [Right.VIEW]


def test_rights_may_be_written_as_words() -> None:
    assert Operator("ada", {"view", "retry"}).rights == {Right.VIEW, Right.RETRY}
    assert Operator("ada", "view").rights == {Right.VIEW}
    assert Operator("ada", ALL_RIGHTS).may(Right.PURGE)


def test_without_the_right_to_look_nobody_may_do_anything() -> None:
    assert not Operator("ada", {Right.RETRY}).may(Right.RETRY)


def test_a_right_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(
        ArgumentRefused, match="names 'delete', and there is none such: choose from view, payload"
    ):
        Operator("ada", {"view", "delete"})
