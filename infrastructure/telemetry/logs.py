"""Structured logs: JSON lines for programs, readable lines at a terminal, both with all that `extra=` gave (O4)."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.plain_text import printable
from outbox_kernel.infrastructure.telemetry.limits import LINE_CHARACTERS_MAX
from outbox_kernel.infrastructure.telemetry.tracebacks import Tracebacks, cut
from outbox_kernel.infrastructure.telemetry.tracing import tracing

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG_LEVEL_VARIABLE = "OUTBOX_LOG_LEVEL"
# Who tells at INFO what nobody asked.
_TALKATIVE = ("alembic",)
# Who tells with a traceback of what we say in a sentence.
_REPEATING = ("aio_pika", "aiormq")
ACTION = "action"
"""By this key every line says what has happened, in a word that stays the same."""
OTHERS_ACTION = "other"
"""The action of lines that are not ours."""
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
# What every record has; the rest came with `extra=`.
_OWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}


def set_up_logs(
    *, as_json: bool | None = None, stream: TextIO | None = None, environ: Mapping[str, str] = os.environ
) -> None:
    """Send this process's logs to `stream` (standard error); as JSON unless that is a terminal."""
    stream = stream or sys.stderr
    if as_json is None:
        as_json = not stream.isatty()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if as_json else ReadableLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_level(environ))
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    silence_clients()


def silence_clients() -> None:
    """Let those be quiet of whose troubles we tell; without any set-up their errors would go to standard error."""
    for name in _REPEATING:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _level(environ: Mapping[str, str]) -> str:
    level = environ.get(LOG_LEVEL_VARIABLE, "").strip().upper() or "INFO"
    if level not in _LEVELS:
        raise BadSetting(LOG_LEVEL_VARIABLE, f"is {level!r}: give one of {', '.join(_LEVELS)}")
    return level


class _Lines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__()
        self._tracebacks = Tracebacks()

    def _exception(self, record: logging.LogRecord) -> str | None:
        return self._tracebacks.told(record.exc_info) if record.exc_info else None


class JsonLines(_Lines):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record in one line, whatever is in it."""
        line = {
            "time": _moment(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "action": action_of(record),
            "message": cut(record.getMessage()),
            **{
                name if name not in _TAKEN else f"{name}_": _short(value)
                for name, value in extras(record).items()
                if name != ACTION
            },
            **tracing.ids(),
        }
        if (exception := self._exception(record)) is not None:
            line["exception"] = exception
        try:
            written = json.dumps(line, default=_told, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            # Keys that are no text, or something that holds itself: rather less than JSON than no line.
            written = None
        if written is None or len(written) > LINE_CHARACTERS_MAX:
            written = json.dumps({name: _told(value) for name, value in line.items()}, ensure_ascii=False)
        return _visible(written)


class ReadableLines(_Lines):
    """Time, level, sentence, then what belongs to it as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record for a person."""
        told = "  ".join(f"{name}={_plain(value)}" for name, value in extras(record).items())
        said = printable(cut(record.getMessage()))
        head = f"{_moment(record).astimezone():%H:%M:%S}  {record.levelname:<8}  {said}"
        line = f"{head}  {told}".rstrip()
        if (exception := self._exception(record)) is not None:
            line += "\n" + "\n".join(map(printable, exception.split("\n")))
        return line


_TAKEN = {"time", "level", "logger", "message", "exception"}


def action_of(record: logging.LogRecord) -> str:
    """Return what has happened, in a word that stays the same."""
    return str(getattr(record, ACTION, OTHERS_ACTION))


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """Return what `extra=` gave."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}


def _moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _told(value: object) -> str:
    return cut(str(value))


def _short(value: object) -> object:
    return cut(value) if isinstance(value, str) else value


def _visible(line: str) -> str:
    """Escape what JSON leaves as it is and a terminal obeys, the second set of its control characters, say."""
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)


def _plain(value: object) -> str:
    text = printable(_told(value))
    return repr(text) if not text or any(character.isspace() for character in text) else text
