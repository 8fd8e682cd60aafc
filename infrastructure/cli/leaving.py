"""How a process ends in spite of what handlers have left behind in it (R11)."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

_log = logging.getLogger("outbox.start")

_behind: list[str] = []


def note(names: Sequence[str]) -> None:
    """Take note of tasks and threads that do not end; the interpreter would wait for them without end."""
    _log.warning(
        "ended without waiting for what handlers have left behind: %s",
        ", ".join(names),
        extra={"action": "process.left_behind"},
    )
    _behind.extend(names)


def end(code: int) -> NoReturn:
    """End the process as the interpreter does, or at once if something was left behind."""
    if _behind:
        leave(code)
    sys.exit(code)


def end_with_traceback(error: BaseException) -> None:
    """Where something was left behind, end at once, as the interpreter ends over an error that nobody catches."""
    if _behind:
        sys.excepthook(type(error), error, error.__traceback__)
        leave(1)


def leave(code: int) -> NoReturn:
    """End the process at once, with all that was said."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)
