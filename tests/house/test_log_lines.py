"""Every line of the log is known by a word that stays the same, and the reference has them all (O4)."""

from __future__ import annotations

import ast
import re

import pytest

from tests.log_lines import ROOT, Call, Line, Untold, calls, lines

PAGE = ROOT / "docs" / "reference" / "log-lines.md"
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def test_every_line_of_the_log_stands_in_the_reference() -> None:
    """O4: by its action, its level and its fields, as the code has them; what it means people have written."""
    rows = ROW.findall(PAGE.read_text())
    told = {action: (level, fields) for action, level, fields, _ in rows}
    assert told == {action: line.told for action, line in lines().items()}
    assert len(rows) == len(told)
    assert [action for action, _, _, meaning in rows if not meaning.strip()] == []


def test_an_action_is_an_area_and_what_has_happened_there() -> None:
    assert [action for action in lines() if not re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", action)] == []


def test_an_event_has_the_same_fields_wherever_one_is_at_hand() -> None:
    ids = {"event_id", "event_type", "position", "aggregate_type", "aggregate_id"}
    others = {
        action: line.fields
        for action, line in lines().items()
        if ids & {*line.fields} and not ids <= {*line.fields}
    }
    # Where nobody has the row: a run knows its event's id, an operator's session what a statement gave back.
    assert {*others} == {
        *("accounts.account_created", "messaging.group_message"),
        *("dispatch.failed", "handler.uncommitted"),
    }


def only_call(code: str) -> Call:
    [call] = calls("file.py", ast.parse(code))
    return call


@pytest.mark.parametrize(
    "code",
    [
        "def f(): _log.info('a')",
        "def f(extra): _log.info('a', extra=extra)",
        "def f(): _log.info('a', extra={**unheard_of()})",
        "def f(): _log.info('a', extra={**unheard_of})",
        "def f(): _log.info('a', extra={**[]})",
    ],
)
def test_a_line_whose_fields_nobody_can_name_is_found(code: str) -> None:
    with pytest.raises(Untold):
        assert only_call(code).extra


def test_the_fields_are_read_off_a_call() -> None:
    code = """
def f(self):
    more = {"a": 1, **({} if self.b else {"b": 2})}
    _log.log(logging.ERROR if more else logging.DEBUG, "…", extra={"action": "x.y", **more, carried.kind: 1})
"""
    call = only_call(code)
    assert [*call.extra] == ["action", "a", "b", "handler", "publisher"]
    assert Line(call.level, ["a", "b"]).told == ("debug or error", "`a`, `b`")
