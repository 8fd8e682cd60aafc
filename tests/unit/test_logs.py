"""Logs of a running process: all that `extra=` gave, for programs and for people, and no more than they read (O4)."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.telemetry import set_up_logs
from outbox_kernel.infrastructure.telemetry.limits import (
    AGAIN_SECONDS,
    EXCEPTION_CHARACTERS_MAX,
    LINE_CHARACTERS_MAX,
    PLACES_MAX,
)
from outbox_kernel.infrastructure.telemetry.tracebacks import Tracebacks, cut


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


# --- what strangers put into names, addresses and titles -------------------------------------------------

COMMANDS = [
    "\x1b]0;owned\x07",
    "\x9b2J",
    "a\r\nfake line",
    "\u202egnp.exe",
    "\ud800",
    "\x00",
    "\u2028",
    "\x7f",
]


@pytest.mark.parametrize("text", COMMANDS, ids=ascii)
@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
def test_nothing_that_a_stranger_wrote_commands_a_terminal_or_makes_a_line(text: str, as_json: bool) -> None:
    stream = io.StringIO()
    set_up_logs(as_json=as_json, stream=stream, environ={})
    log = logging.getLogger("outbox.http")
    log.warning("it said %s", text, extra={"email": text, "names": [text]})
    log.error("it failed", exc_info=ValueError(text))
    written = stream.getvalue()
    assert all(each.isprintable() for line in written.split("\n") for each in line)
    written.encode()
    if as_json:
        first, second = map(json.loads, written.splitlines())
        assert (first["message"], first["email"], first["names"]) == (f"it said {text}", text, [text])
        assert text in second["exception"]
    else:
        assert written.splitlines()[0].count("it said") == 1


# --- what is too long, and what comes again --------------------------------------------------------------


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
def test_an_exception_of_many_megabytes_is_told_in_short(as_json: bool) -> None:
    stream, text = io.StringIO(), "begin" + "x" * 20_000_000 + "end"
    set_up_logs(as_json=as_json, stream=stream, environ={})
    error = ValueError(text)
    extra = {"error": text, "many": [text], "object": error}
    logging.getLogger("outbox.relay").error("it failed: %s", error, exc_info=error, extra=extra)
    written = stream.getvalue()
    assert len(written) < 6 * EXCEPTION_CHARACTERS_MAX < LINE_CHARACTERS_MAX
    assert written.count("characters cut…]") >= 5
    assert written.count("begin") == written.count("end") == 5


def test_what_is_not_too_long_is_told_whole() -> None:
    text = "x" * EXCEPTION_CHARACTERS_MAX
    assert cut(text) == text
    assert cut(text + "y").startswith("x" * (EXCEPTION_CHARACTERS_MAX // 2) + " […1 characters cut…] ")


def raised(kind: type[Exception] = ValueError, text: str = "no") -> Any:
    with pytest.raises(kind) as caught:
        raise kind(text)
    return caught.type, caught.value, caught.tb


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_traceback_that_comes_again_is_counted_and_not_printed() -> None:
    clock = Clock()
    tracebacks = Tracebacks(clock)
    first = tracebacks.told(raised())
    assert first.startswith("Traceback")
    assert first.endswith("ValueError: no")
    again = [tracebacks.told(raised(text=f"no {number}\nand more")) for number in range(37)]
    assert again[-1].startswith("ValueError: no 36 (raised at ")
    assert again[-1].endswith(", again, 37 times since its traceback)")
    clock.seconds = AGAIN_SECONDS
    assert tracebacks.told(raised()).startswith("Traceback")
    assert "again, 1 time since" in tracebacks.told(raised())


def test_one_of_another_kind_or_from_another_place_is_another() -> None:
    tracebacks = Tracebacks()
    assert tracebacks.told(raised()).startswith("Traceback")
    assert tracebacks.told(raised(KeyError)).startswith("Traceback")
    with pytest.raises(ValueError, match="no") as elsewhere:
        raise ValueError("no")
    assert tracebacks.told((ValueError, elsewhere.value, elsewhere.tb)).startswith("Traceback")
    assert "again, 1 time since" in tracebacks.told(raised())


def test_what_was_raised_nowhere_or_has_no_text_is_told_all_the_same() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    tracebacks, mute = Tracebacks(), Mute()
    assert tracebacks.told((None, None, None)) == "NoneType: None"
    assert "Mute" in tracebacks.told((Mute, mute, None))
    assert "Mute: <no text> (raised nowhere, again, 1 time since" in tracebacks.told((Mute, mute, None))


def test_only_so_many_places_are_kept_in_mind() -> None:
    clock = Clock()
    tracebacks = Tracebacks(clock)
    for number in range(PLACES_MAX + 1):
        clock.seconds = number / PLACES_MAX
        kind = type(f"Error{number}", (Exception,), {})
        tracebacks.told((kind, kind(), None))
    assert len(tracebacks._told) == PLACES_MAX  # noqa: SLF001 - it tells nobody how much it keeps


def test_a_record_that_repeats_keeps_its_line_and_loses_its_traceback() -> None:
    stream = io.StringIO()
    set_up_logs(as_json=True, stream=stream, environ={})
    for number in range(3):
        logging.getLogger("outbox.http").error("failed", exc_info=raised(), extra={"request_id": number})
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["request_id"] for line in lines] == [0, 1, 2]
    assert ["Traceback" in line["exception"] for line in lines] == [True, False, False]
