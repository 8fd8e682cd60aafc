"""What was in a sealed field is in no error that is stored or logged (O6, K11)."""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from outbox_kernel.infrastructure.outbox.sealing.limits import SHOWN_CHARACTERS_MAX
from outbox_kernel.infrastructure.outbox.sealing.scrubbing import (
    NOT_SHOWN,
    scrubbed,
    secrets_of,
    texts_in,
    traceback_of,
)
from outbox_kernel.kernel import DomainEvent, event, sensitive

SECRET = 'Ada "Lovelace"\n12 Byron Räw/3'


def test_texts_are_those_of_the_values_and_not_of_the_keys() -> None:
    values = ["12 Byron Row", {"value": 123456, "more": [True, None, "abc", 1.25]}, "abc", False, 999]
    assert texts_in(values) == ("12 Byron Row", "123456", "1.25")


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        SECRET.upper(),
        repr(SECRET),
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        quote(SECRET),
        quote_plus(SECRET),
        SECRET.replace("\n", "\\n"),
    ],
)
def test_a_value_is_masked_however_it_is_written(written: str) -> None:
    shown = scrubbed(f"refused: {written} (sorry)", texts_in([SECRET]))
    assert shown.startswith("refused: ")
    assert shown.endswith(" (sorry)")
    for piece in ("Lovelace", "LOVELACE", "Byron", "BYRON"):
        assert piece not in shown


def test_a_piece_of_a_value_is_masked_too() -> None:
    token = "Zm9vYmFyYmF6cXV4"
    assert scrubbed("input_value='Zm9vYmFy...mF6cXV4'", [token]) == "input_value='***...mF6cXV4'"
    assert scrubbed("Zm9vYmFy Zm9vYmF", [token]) == "*** Zm9vYmF"


def test_a_short_value_is_masked_where_it_is_whole() -> None:
    assert scrubbed("code 1234, not 123 or 12345", ["1234"]) == "code ***, not 123 or ***5"


def test_what_has_another_length_in_lower_case_masks_its_own_place() -> None:
    assert scrubbed("İİ 12 Byron Row ß", ["12 BYRON row"]) == "İİ *** ß"


@event("scrubbing.told")
class Told(DomainEvent):
    who: str
    what: Any = sensitive(subject="who", forgotten=None)
    plain: str = "as it is"


def test_what_may_not_be_told_of_an_event_is_what_its_class_seals() -> None:
    """One or several, and whatever else a handler may be given; of what cannot be stored, too."""
    one, other = Told("ada", {"street": "12 Byron Row"}), Told("bo", None)
    assert secrets_of(one) == ("12 Byron Row",)
    assert secrets_of([one, other, Told("cleo", "14 Byron Row")]) == ("12 Byron Row", "14 Byron Row")
    assert secrets_of(other) == secrets_of(object()) == secrets_of(Plain("12 Byron Row")) == ()
    assert secrets_of(Told("ada", "half \ud800")) == ("half \ud800",)


@event("scrubbing.plain")
class Plain(DomainEvent):
    what: str


def test_an_error_of_an_event_without_sealed_fields_stays_as_it_is() -> None:
    error = ValueError("12 Byron Row")
    assert scrubbed("12 Byron Row", ()) == "12 Byron Row"
    assert traceback_of(error, ()) is error
    assert traceback_of(None, ("12 Byron Row",)) is None


def test_what_is_too_long_to_look_through_is_not_told() -> None:
    assert scrubbed("x", ["y" * 200_000]) == NOT_SHOWN
    assert scrubbed("y" * 200_000, ["abcd"]) == NOT_SHOWN


def test_a_traceback_is_logged_without_what_its_errors_say_of_it(caplog: pytest.LogCaptureFixture) -> None:
    def deliver(address: str) -> None:
        try:
            dict[str, str]()[address]
        except KeyError as error:
            failure = ValueError(f"no such address: {address}")
            failure.add_note(f"asked for {address.upper()}")
            raise failure from error

    with pytest.raises(ValueError, match="no such address") as failed:
        deliver("12 Byron Row")
    logging.getLogger("test").error("failed", exc_info=traceback_of(failed.value, ["12 Byron Row"]))
    assert "ValueError: no such address: ***" in caplog.text
    assert "KeyError: '***'" in caplog.text
    assert "in deliver" in caplog.text
    assert "byron" not in caplog.text.lower()


def test_what_would_fill_a_log_is_told_in_short_with_where_it_was_raised() -> None:
    """R12: also where it is what another was raised for, and has no secret."""
    failed = KeyError("no")
    failed.__cause__ = ValueError("begin" + "x" * 10_000_000)
    told = str(traceback_of(failed, ()))
    assert len(told) < 2 * SHOWN_CHARACTERS_MAX
    assert "ValueError: begin" in told
    assert "characters cut…]" in told
    assert "KeyError: 'no'" in told


def test_an_error_without_words_of_its_own_is_logged_as_it_is() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    error = Mute()
    assert traceback_of(error, ()) is error
