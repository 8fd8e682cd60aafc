"""What operators type, and who can run what (O1, R9)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from outbox_kernel.infrastructure.operations import AggregateKey
from outbox_kernel.infrastructure.operations.abilities import why_not
from outbox_kernel.infrastructure.operations.selection import Moment, type_pattern
from outbox_kernel.infrastructure.operations.verdicts import seconds
from outbox_kernel.kernel.identity import uuid_of

ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")


def test_an_aggregate_is_its_id_with_or_without_its_type() -> None:
    assert AggregateKey.parse(str(ID)) == AggregateKey(ID)
    assert AggregateKey.parse(f"bank.wallet:{ID}") == AggregateKey(ID, "bank.wallet")
    assert str(AggregateKey(ID, "bank.wallet")) == f"bank.wallet:{ID}"
    with pytest.raises(ValueError, match="names no aggregate"):
        AggregateKey.parse("bank.wallet:")


def test_an_aggregate_is_named_by_its_key_as_written() -> None:
    """C10: an integer, a text, with colons in it where its type stands before it."""
    assert AggregateKey.parse("order:42") == AggregateKey("42", "order")
    assert AggregateKey.parse("42").ids == [uuid_of(42)]
    assert AggregateKey.parse("article:tea:green") == AggregateKey("tea:green", "article")


def test_a_text_that_may_be_a_uuid_in_another_writing_is_looked_for_as_both() -> None:
    """C10: a key may be such a text, and a person may type a UUID in capitals."""
    for text in (str(ID).upper(), ID.hex):
        assert set(AggregateKey.parse(text).ids) == {ID, uuid_of(text)}
    assert AggregateKey.parse(str(ID)).ids == [ID]


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90s", timedelta(seconds=90)),
        ("1.5h", timedelta(hours=1.5)),
        ("7 d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_a_moment_may_be_an_age(text: str, ago: timedelta) -> None:
    assert Moment.parse(text) == Moment(ago=ago)


def test_a_moment_without_a_zone_is_utc() -> None:
    assert Moment.parse("2026-01-31").at == datetime(2026, 1, 31, tzinfo=UTC)
    assert Moment.parse("2026-01-31T12:00+01:00").at == datetime(2026, 1, 31, 11, tzinfo=UTC)


@pytest.mark.parametrize("text", ["yesterday", "7", "7y", "-3d", "99999999999999w"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Moment.parse(text)


@pytest.mark.parametrize(
    ("patterns", "event_type", "matches"),
    [
        (["bank.paid"], "bank.paid", True),
        (["bank.paid"], "bankXpaid", False),
        (["bank.*", "x"], "bank.paid.twice", True),
        (["bank.*"], "abank.paid", False),
        (["Family?"], "FamilyA", True),
        ([], "bank.paid", False),
    ],
)
def test_patterns_match_whole_names(patterns: list[str], event_type: str, *, matches: bool) -> None:
    assert (re.fullmatch(type_pattern(patterns), event_type) is not None) is matches


def test_a_relay_that_knows_the_newest_version_is_enough() -> None:
    abilities = [{"a.B": {"bank.paid": 1}}, {"a.B": {"bank.paid": 2}}]
    assert why_not(abilities, "a.B", "bank.paid", 2) is None
    assert why_not([], "a.B", "bank.paid", 1) == "no live relay carries it"


def test_durations_read_as_a_person_says_them() -> None:
    assert [seconds(each) for each in (-1, 1.25, 90, 5400, 86_400 * 3)] == [
        *("0.0 s", "1.2 s", "1.5 min", "1.5 h"),
        "3.0 d",
    ]
