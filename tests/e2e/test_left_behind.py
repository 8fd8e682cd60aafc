"""What handlers leave behind, in tasks and threads, keeps no process from its end (R11)."""

from __future__ import annotations

import pytest

from tests.commands import outbox

LEAVING = """
import asyncio, sys, threading
from concurrent.futures import ThreadPoolExecutor
from outbox_kernel.errors import KernelError
from outbox_kernel.infrastructure.cli import command_line, leaving, serving
from outbox_kernel.kernel import calling

never = asyncio.Event()

async def stubborn():
    while True:
        try:
            await never.wait()
        except asyncio.CancelledError:
            pass

async def testator():
    try:
        await never.wait()
    finally:
        asyncio.create_task(heir())

async def heir():
    try:
        await never.wait()
    finally:
        print("the heir has ended")

async def work():
    if "heir" in {kinds!r}:
        asyncio.create_task(testator())
        await asyncio.sleep(0)
    if "task" in {kinds!r}:
        asyncio.create_task(stubborn(), name="stubborn")
        await asyncio.sleep(0)
    if "thread" in {kinds!r}:
        asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    if "function" in {kinds!r}:
        def hang(event):
            threading.Event().wait()
        asyncio.create_task(calling.awaitable(hang)(None))
        await asyncio.sleep(0)
    if "own" in {kinds!r}:
        threading.Thread(target=threading.Event().wait, name="own").start()
    if "pool" in {kinds!r}:
        ThreadPoolExecutor(thread_name_prefix="pool").submit(threading.Event().wait)
    if "idle" in {kinds!r}:
        ThreadPoolExecutor().submit(int).result()
        threading.Thread(target=int).start()
    if "tidy" in {kinds!r}:
        asyncio.create_task(never.wait())
        await asyncio.get_running_loop().run_in_executor(None, int)
    if "broken" in {kinds!r}:
        raise KernelError("the database is gone")
    if "defect" in {kinds!r}:
        raise ZeroDivisionError("by nought")

@command_line.outbox.command("work")
def command():
    serving.run_loop(work())
    print("done")

command_line.LazyGroup.get_command = lambda *_: command
leaving.LEFT_OVER_SECONDS = serving.LEFT_OVER_SECONDS = 0.1
sys.argv = ["outbox", "work"]
command_line.main()
"""
BEHIND = "ended without waiting for what handlers have left behind: "


@pytest.mark.parametrize(
    ("kinds", "names"),
    [
        ("task", "stubborn"),
        ("thread", "outbox-thread_0"),
        ("task, thread", "stubborn, outbox-thread_0"),
        ("function", "outbox-handler work.<locals>.hang"),
        ("own", "own"),
        ("own, pool", "own, pool_0"),
    ],
)
def test_what_does_not_end_is_named_and_not_waited_for(kinds: str, names: str) -> None:
    done = outbox("-c", LEAVING.format(kinds=kinds))
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr == f"{BEHIND}{names}\n"


@pytest.mark.parametrize("kinds", ["tidy", "idle", "tidy, idle"])
def test_what_can_be_ended_is_ended_without_a_word(kinds: str) -> None:
    done = outbox("-c", LEAVING.format(kinds=kinds))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_what_a_task_begins_at_its_end_is_ended_too() -> None:
    """A driver that is cancelled in a call opens a connection to have the server cancel it, too."""
    done = outbox("-c", LEAVING.format(kinds="heir, broken"))
    assert (done.returncode, done.stdout) == (1, "the heir has ended\n")
    assert done.stderr == "error: the database is gone\n"


def test_an_error_is_told_and_ends_the_process_in_spite_of_what_was_left_behind() -> None:
    done = outbox("-c", LEAVING.format(kinds="task, thread, broken"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{BEHIND}stubborn, outbox-thread_0\nerror: the database is gone\n"


def test_a_defect_ends_the_process_in_spite_of_what_was_left_behind() -> None:
    done = outbox("-c", LEAVING.format(kinds="thread, defect"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{BEHIND}outbox-thread_0\nTraceback")
    assert done.stderr.endswith("ZeroDivisionError: by nought\n")


@pytest.mark.parametrize(
    ("kinds", "told"), [("own, broken", "error: the database is gone"), ("own, defect", "by nought")]
)
def test_an_error_keeps_its_code_where_a_thread_of_a_handlers_own_stays(kinds: str, told: str) -> None:
    done = outbox("-c", LEAVING.format(kinds=kinds))
    assert (done.returncode, done.stdout) == (1, "")
    assert told in done.stderr
    assert f"{BEHIND}own\n" in done.stderr
