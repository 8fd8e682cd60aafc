"""What handlers leave behind, in tasks and threads, keeps no process from its end (R11)."""

from __future__ import annotations

import pytest

from tests.commands import outbox

LEAVING = """
import asyncio, threading
from infrastructure.cli import serving

never = asyncio.Event()

async def stubborn():
    while True:
        try:
            await never.wait()
        except asyncio.CancelledError:
            pass

async def work():
    if "task" in {kinds!r}:
        asyncio.create_task(stubborn(), name="stubborn")
        await asyncio.sleep(0)
    if "thread" in {kinds!r}:
        asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    if "tidy" in {kinds!r}:
        asyncio.create_task(never.wait())
        await asyncio.get_running_loop().run_in_executor(None, int)

serving.LEFT_OVER_SECONDS = 0.1
serving.run_loop(work())
print("ended by itself")
"""


@pytest.mark.parametrize(
    ("kinds", "names"),
    [("task", "stubborn"), ("thread", "outbox-thread_0"), ("task, thread", "stubborn, outbox-thread_0")],
)
def test_what_does_not_end_is_named_and_not_waited_for(kinds: str, names: str) -> None:
    done = outbox("-c", LEAVING.format(kinds=kinds))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"ended without waiting for what handlers have left behind: {names}\n"


def test_what_can_be_ended_is_ended_without_a_word() -> None:
    done = outbox("-c", LEAVING.format(kinds="tidy"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended by itself\n", "")
