"""K5, R8: a function that is no coroutine runs in a thread, which is left behind when its run is given up."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from outbox_kernel.kernel.calling import THREADS, awaitable


async def test_what_comes_of_a_thread_after_its_run_was_given_up_is_in_the_log_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R8: with the error, since nobody is left to raise it to."""
    loop, begun, gate = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def hang() -> None:
        loop.call_soon_threadsafe(begun.set)
        gate.wait()
        raise ValueError("too late")

    async def given_up() -> None:
        await awaitable(hang, "slow")()

    run = asyncio.create_task(given_up())
    await begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    [left] = [each for each in threading.enumerate() if each.name == f"{THREADS} slow"]
    with caplog.at_level(logging.WARNING, "outbox.handlers"):
        gate.set()
        left.join()
        # The loop does first what the thread has given it to do before it ended.
        done = asyncio.Event()
        loop.call_soon(done.set)
        await done.wait()
    [record] = caplog.records
    assert record.getMessage() == "the thread of handler slow ended after its run had been given up"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "too late"
