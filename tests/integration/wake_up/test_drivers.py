"""R10, C9: relays are told of what commits over psycopg, too, synchronous programs included."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from sqlalchemy import Engine
from sqlalchemy import create_engine as create_sync_engine

from contexts.profiles.events import ProfileCreated
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.outbox import bus_of, thread_bell, wake_up
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import listen_unheard
from outbox_kernel.infrastructure.outbox.wake_up import wake_relays
from outbox_kernel.infrastructure.settings import Settings
from tests import drivers
from tests.commands import ROOT, environment_with
from tests.drivers import Driver
from tests.waiting import until

CHANNEL = "outbox_channel"
SYNC = "psycopg, sync"
CUT_OFF = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE 'NOTIFY%' AND pid <> pg_backend_pid()
"""


class Ear:
    """Hears what is said on the channel, and may say something itself."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection
        self.heard: asyncio.Queue[str] = asyncio.Queue()

    def hear(self, *said: object) -> None:
        self.heard.put_nowait(str(said[-1]))

    async def next(self) -> str:
        async with asyncio.timeout(10):
            return await self.heard.get()

    async def say(self, word: str) -> None:
        await self.connection.execute(f"NOTIFY {CHANNEL}, '{word}'")


@pytest.fixture
async def url(empty_postgres_url: str) -> str:
    engine = create_engine(empty_postgres_url)
    await migrate(engine, Settings(contexts=()))
    await engine.dispose()
    return empty_postgres_url


@pytest.fixture
async def ear(url: str) -> AsyncIterator[Ear]:
    connection = await asyncpg.connect(url)
    ear = Ear(connection)
    await connection.add_listener(CHANNEL, ear.hear)
    yield ear
    await connection.close()


@pytest.fixture
async def driver(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Driver]:
    driver = Driver.of(getattr(request, "param", SYNC), url)
    yield driver
    await driver.dispose()


def commit_in_threads(driver: Driver, number: int) -> list[BaseException]:
    raised: list[BaseException] = []

    def commit() -> None:
        try:
            commit_one(driver)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            raised.append(error)

    threads = [threading.Thread(target=commit) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


async def test_two_threads_that_commit_first_at_once_both_commit_and_ring_one_bell(
    driver: Driver, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10: what has committed has committed."""
    both = threading.Barrier(2)
    bells: list[object] = []

    def meet() -> None:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # of two that may not be here together, one waits outside

    def make(engine: Engine, channel: str) -> thread_bell.ThreadBell:
        meet()
        bells.append(bell := thread_bell.ThreadBell(engine, channel))
        return bell

    def listen(*given: Any) -> None:
        meet()
        listen_unheard(*given)
        meet()

    monkeypatch.setattr(wake_up, "ThreadBell", make)
    monkeypatch.setattr(wake_up, "listen_unheard", listen)
    assert await asyncio.to_thread(commit_in_threads, driver, 2) == []
    assert len(bells) == 1
    assert await ear.next() == ""


async def test_whatever_goes_wrong_with_a_bell_the_commit_stands_and_the_log_has_it(
    driver: Driver, ear: Ear, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R10."""

    def make(engine: Engine, channel: str) -> thread_bell.ThreadBell:
        raise ArithmeticError("no bell today")

    monkeypatch.setattr(wake_up, "ThreadBell", make)
    assert await asyncio.to_thread(commit_in_threads, driver, 1) == []
    assert "relays are not told of a commit and find it at their next poll" in caplog.text
    assert "no bell today" in caplog.text


def commit_one(driver: Driver) -> None:
    with driver.captured().begin() as session:
        bus_of(session).emit(ProfileCreated(uuid4(), uuid4()))


@pytest.mark.servers
@pytest.mark.parametrize("driver", drivers.NAMES, indirect=True)
async def test_a_commit_over_any_driver_is_told(driver: Driver, ear: Ear) -> None:
    """R10, C9."""
    for _ in range(2):
        await driver.run(lambda: commit_one(driver))
        assert await ear.next() == ""


@pytest.mark.parametrize("driver", ["psycopg, async", SYNC], indirect=True)
async def test_whoever_was_cut_off_tells_on_a_new_connection(driver: Driver, ear: Ear) -> None:
    """R10."""
    for _ in range(2):
        await driver.run(lambda: commit_one(driver))
        assert await ear.next() == ""
        assert await ear.connection.fetchval(CUT_OFF)


async def test_a_burst_from_many_threads_is_told_together(
    driver: Driver, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10: and its last commit is not missed."""
    monkeypatch.setattr(thread_bell, "BURST_SECONDS", 3_600.0)  # until the engine is disposed of
    commit_one(driver)
    assert await ear.next() == ""
    await asyncio.gather(*(asyncio.to_thread(commit_one, driver) for _ in range(20)))
    await asyncio.to_thread(driver.engine.dispose)
    assert await ear.next() == ""
    await ear.say("that was all")
    assert await ear.next() == "that was all"


async def test_a_disposed_engine_of_a_synchronous_driver_holds_no_connection(
    driver: Driver, ear: Ear
) -> None:
    commit_one(driver)
    await ear.next()
    driver.engine.dispose()
    held = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )

    async def is_alone() -> bool:
        return bool(await ear.connection.fetchval(held) == 0)

    await until(is_alone)  # the server takes leave of a closed connection in its own time


async def test_a_thread_that_has_hung_up_is_not_waited_for_and_another_tells_the_next_commit(
    driver: Driver, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10: the bell is silenced when its engine is disposed of, and an engine may be used again after that."""
    monkeypatch.setattr(thread_bell, "LINGER_SECONDS", 0.0)
    bell = thread_bell.ThreadBell(driver.engine, CHANNEL)
    for _ in range(2):
        bell.ring()
        assert await ear.next() == ""
        await until(lambda: hung_up(bell))
        bell.silence()


async def hung_up(bell: thread_bell.ThreadBell) -> bool:
    return bell._thread is None  # noqa: SLF001 - nothing else tells of it


PROGRAM = """
import os, sys
from uuid import uuid4
from sqlalchemy import create_engine
from sqlalchemy.orm import Session, sessionmaker
from contexts.profiles.events import ProfileCreated
from outbox_kernel import bus_of, install_capture

engine = create_engine(sys.argv[1])
make = install_capture(sessionmaker(engine))

def commit():
    with make.begin() as session:
        bus_of(session).emit(ProfileCreated(uuid4(), uuid4()))

{end}
"""
ENDS = {
    "it returns": "commit()",
    "it exits": "commit(); sys.exit(0)",
    "it disposes of its engine": "commit(); engine.dispose()",
    # As workers of a task queue do: what was made before the fork is the parent's.
    "it is a fork": """
commit()
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
engine.dispose(close=False)
commit()
""",
}


AWAITING_PROGRAM = """
import asyncio, sys
from uuid import uuid4
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from contexts.profiles.events import ProfileCreated
from outbox_kernel import bus_of, install_capture

async def program():
    make = install_capture(async_sessionmaker(create_async_engine(sys.argv[1])))
    async with make.begin() as session:
        bus_of(session).emit(ProfileCreated(uuid4(), uuid4()))

asyncio.run(program())
"""


async def test_the_last_commit_of_a_program_that_awaits_psycopg_is_told(url: str, ear: Ear) -> None:
    """R10, C9."""
    by_psycopg = url.replace("postgresql://", "postgresql+psycopg://")
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", AWAITING_PROGRAM, by_psycopg), cwd=ROOT, env=environment_with()
    )
    assert await program.wait() == 0
    await ear.say("the end")
    assert [await ear.next(), await ear.next()] == ["", "the end"]


@pytest.mark.parametrize("end", ENDS)
async def test_the_last_commit_of_a_synchronous_program_is_told(end: str, url: str, ear: Ear) -> None:
    """R10, C9: a plain script, which knows of no event loop."""
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM.format(end=ENDS[end])),
        url.replace("postgresql://", "postgresql+psycopg://"),
        cwd=ROOT,
        env=environment_with(),
    )
    assert await program.wait() == 0
    # What is said after this, on a connection that was here before, would be heard after it.
    await ear.say("the end")
    commits = 2 if end == "it is a fork" else 1
    assert [await ear.next() for _ in range(commits + 1)] == [""] * commits + ["the end"]
    assert await ear.connection.fetchval("SELECT count(*) FROM outbox_events") == commits


async def test_a_commit_survives_that_no_thread_can_tell_of_it(
    driver: Driver, ear: Ear, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10: as at the very end of a process."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with caplog.at_level(logging.INFO, logger="outbox.wake_up"), monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        commit_one(driver)
    assert "find it at their next poll: can't start new thread" in caplog.text
    commit_one(driver)
    assert await ear.next() == ""


async def test_a_database_that_a_thread_cannot_tell_is_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R10, R12."""
    engine = create_sync_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    with caplog.at_level(logging.INFO, logger="outbox.wake_up"):
        wake_relays(engine, CHANNEL)
        engine.dispose()
    assert caplog.text.count("find it at their next poll") == 1


def test_a_server_that_says_nothing_is_waited_for_no_longer_than_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R12: psycopg itself would wait for ever."""
    monkeypatch.setattr(thread_bell, "ANSWER_SECONDS_MAX", 0.01)
    here, there = socket.socketpair()
    link = SimpleNamespace(
        socket=here.fileno(),
        send_query=there.send,
        flush=lambda: 0,
        is_busy=lambda: True,
        consume_input=lambda: here.recv(100),
    )
    with here, there, pytest.raises(TimeoutError):
        thread_bell._say(SimpleNamespace(pgconn=link), "NOTIFY")  # noqa: SLF001 - no server of ours falls silent


async def test_what_the_server_says_to_a_thread_is_its_error(url: str) -> None:
    """R10: so that it comes into the log, and a new connection is tried."""
    with (
        closing(psycopg.connect(url)) as connection,
        pytest.raises(psycopg.OperationalError, match="syntax error"),
    ):
        thread_bell._say(connection, "NOTIFY nobody in particular")  # noqa: SLF001 - as above
