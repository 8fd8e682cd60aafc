"""Logs of a running process: all that `extra=` gave, for programs and for people (O4)."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.telemetry import set_up_logs


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def logged(*, as_json: bool | None, error: bool = False, **extra: Any) -> str:
    stream = io.StringIO()
    set_up_logs(as_json=as_json, stream=stream, environ={})
    reason = ValueError("no") if error else None
    logging.getLogger("outbox.relay").info("it %s", "works", extra=extra, exc_info=reason)
    return stream.getvalue()


def test_into_a_pipe_each_record_is_one_json_object_with_its_extras() -> None:
    line = json.loads(logged(as_json=None, handler="a.B", attempts=2))
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "outbox.relay",
        "action": "other",
        "message": "it works",
        "handler": "a.B",
        "attempts": 2,
    }


def test_a_line_says_first_what_has_happened() -> None:
    line = logged(as_json=True, handler="a.B", action="handler.tried")
    assert [*json.loads(line)] == ["time", "level", "logger", "action", "message", "handler"]
    assert json.loads(line)["action"] == "handler.tried"
    assert logged(as_json=False, action="handler.tried").endswith("it works  action=handler.tried\n")


def test_an_exception_and_what_json_cannot_say_stay_within_the_line() -> None:
    text = logged(as_json=True, error=True, what={1, 2}, level="taken")
    assert text.count("\n") == 1
    line = json.loads(text)
    assert line["exception"].endswith("ValueError: no")
    assert (line["level"], line["level_"], line["what"]) == ("info", "taken", "{1, 2}")


def test_for_people_extras_follow_the_sentence() -> None:
    text = logged(as_json=False, handler="a.B", why="two words", none="")
    assert text.endswith("INFO      it works  handler=a.B  why='two words'  none=''\n")
    assert logged(as_json=False, error=True).endswith("ValueError: no\n")


def test_the_level_is_a_setting() -> None:
    stream = io.StringIO()
    set_up_logs(stream=stream, environ={"OUTBOX_LOG_LEVEL": "warning"})
    logging.getLogger("outbox.relay").info("unheard")
    assert stream.getvalue() == ""
    with pytest.raises(BadSetting, match="OUTBOX_LOG_LEVEL is 'LOUD': give one of DEBUG, INFO"):
        set_up_logs(stream=stream, environ={"OUTBOX_LOG_LEVEL": "loud"})


def test_on_a_terminal_no_value_commands_it() -> None:
    line = logged(as_json=False, error_message="\x1b[2J\x9b2J", event_type="a\nb")
    assert line.endswith("error_message=\\x1b[2J\\x9b2J  event_type=a\\nb\n")


def test_what_holds_itself_is_told_all_the_same() -> None:
    ring: dict[object, object] = {(1, 2): "no text"}
    ring["itself"] = ring
    line = json.loads(logged(as_json=True, ring=ring))
    assert (line["message"], line["ring"]) == ("it works", "{(1, 2): 'no text', 'itself': {...}}")
