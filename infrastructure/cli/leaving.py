"""How a process ends in spite of what handlers have left behind in it (R11)."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, NoReturn

from outbox_kernel.infrastructure.cli.limits import LEFT_OVER_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_log = logging.getLogger("outbox.start")

_behind: list[str] = []
_others: list[threading.Thread] = []
_process = SimpleNamespace(is_own=False)


def note(names: Sequence[str]) -> None:
    """Take note of tasks and threads that do not end; the interpreter would wait for them without end."""
    _log.warning(
        "ended without waiting for what handlers have left behind: %s",
        ", ".join(names),
        extra={"action": "process.left_behind"},
    )
    _behind.extend(names)


def take_process() -> None:
    """Take note that this process is the command's alone, and ends with it."""
    _process.is_own = True


def note_others(threads: Iterable[threading.Thread]) -> None:
    """Take note of threads that handlers have begun themselves; the interpreter ends those that have nothing to do."""
    if _process.is_own:
        _others.extend(each for each in threads if not each.daemon)


def end(code: int) -> NoReturn:
    """End the process as the interpreter does, or at once if something was left behind."""
    if _behind:
        leave(code)
    if _others:
        threading.Thread(target=_wait_for_others, args=(code,), daemon=True).start()
    sys.exit(code)


def _wait_for_others(code: int) -> None:
    """While the interpreter waits for threads without end, wait for a while, and end the process."""
    until = time.monotonic() + LEFT_OVER_SECONDS
    for thread in _others:
        thread.join(max(0.0, until - time.monotonic()))
    if left := [each.name for each in _others if each.is_alive()]:
        note(left)
        leave(code)


def end_with_traceback(error: BaseException) -> None:
    """Where something was left behind, end at once, as the interpreter ends over an error that nobody catches."""
    if any(each.is_alive() for each in _others):
        sys.excepthook(type(error), error, error.__traceback__)
        end(1)
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
