"""A process that serves until it is told to stop: its loop, its signals, its exit codes (R11)."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from outbox_kernel.infrastructure.cli import leaving
from outbox_kernel.infrastructure.cli.limits import GARBAGE_COUNTED_MAX, LEFT_OVER_SECONDS
from outbox_kernel.kernel.calling import THREADS as HANDLERS_THREADS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

R = TypeVar("R")

_log = logging.getLogger("outbox.start")

EXIT_SIGNALLED = 128
_THREADS = "outbox-thread"


def run_loop(work: Coroutine[Any, Any, R]) -> R:
    """Run it on uvloop where that is installed."""
    factory = import_module("uvloop").new_event_loop if find_spec("uvloop") else None
    runner = asyncio.Runner(loop_factory=factory)
    before, threads = {*threading.enumerate()}, ThreadPoolExecutor(thread_name_prefix=_THREADS)
    runner.get_loop().set_default_executor(threads)
    try:
        return runner.run(work)
    finally:
        # A runner's close waits without end for tasks that ignore their cancellation, for threads, and on uvloop for
        # what a task has begun that another's cancellation began: handlers and drivers leave all three.
        if left := runner.run(_left_over(threads)):
            leaving.note(left)
        else:
            runner.close()
        leaving.note_others(each for each in threading.enumerate() if each not in before)


async def _left_over(threads: ThreadPoolExecutor) -> list[str]:
    """Cancel what still runs and what that begins, and name what has not ended in time."""
    until = time.monotonic() + LEFT_OVER_SECONDS
    while (tasks := _other_tasks()) and (rest := until - time.monotonic()) > 0:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=rest)
    threads.shutdown(wait=False, cancel_futures=True)
    return [*(task.get_name() for task in tasks), *_threads_left()]


def _other_tasks() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


def _threads_left() -> list[str]:
    every = [each for each in threading.enumerate() if each.name.startswith((_THREADS, HANDLERS_THREADS))]
    deadline = time.monotonic() + LEFT_OVER_SECONDS
    for thread in every:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [each.name for each in every if each.is_alive()]


def freeze_what_stays() -> None:
    """Spare the garbage collector all that has been loaded: it would walk it again, batch after batch."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_COUNTED_MAX)


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the first SIGTERM or SIGINT; on the second, end this process at once."""
    loop, told = asyncio.get_running_loop(), False

    def on_signal(number: int) -> None:
        nonlocal told
        if told:
            _log.warning(
                "stopped at once: what is in hand is left for others to take over",
                extra={"action": "process.stopped_at_once"},
            )
            leaving.leave(EXIT_SIGNALLED + number)
        told = True
        _log.info(
            "stopping: a second signal stops at once",
            extra={"action": "process.stopping", "signal": signal.Signals(number).name},
        )
        stop()

    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
