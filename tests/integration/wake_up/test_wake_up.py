"""Relays are told after the commit, at once when it is quiet and together in a burst (R10)."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import weakref
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from sqlalchemy import Engine, event, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.pool import NullPool

from contexts.profiles.events import ProfileCreated
from outbox_kernel.infrastructure.database import create_engine, session_factory
from outbox_kernel.infrastructure.outbox import loop_bell
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.outbox.wake_up import wake_relays
from outbox_kernel.infrastructure.postgres.connections import connect
from outbox_kernel.infrastructure.relay.listener import Listener
from outbox_kernel.infrastructure.settings import Settings
from tests import servers
from tests.commands import ROOT, environment_with
from tests.pooler import pooler_before
from tests.waiting import until

CHANNEL = "outbox_channel"
Sessions = async_sessionmaker[AsyncSession]


class Ear:
    """Hears what is said on the channel."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[str] = asyncio.Queue()

    def hear(self, *said: object) -> None:
        self.heard.put_nowait(str(said[-1]))

    async def next(self) -> str:
        async with asyncio.timeout(10):
            return await self.heard.get()


@pytest.fixture
async def engine(empty_postgres_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(empty_postgres_url)
    await migrate(engine, Settings(contexts=()))
    yield engine
    await engine.dispose()


@pytest.fixture
async def connection(empty_postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(empty_postgres_url)
    yield connection
    await connection.close()


@pytest.fixture
async def ear(connection: asyncpg.Connection, engine: AsyncEngine) -> Ear:
    ear = Ear()
    await connection.add_listener(CHANNEL, ear.hear)
    return ear


async def commit_one(sessions: Sessions) -> None:
    async with sessions() as session:
        session.sync_session.outbox.emit(ProfileCreated(uuid4(), uuid4()))  # type: ignore[attr-defined]  # captured
        await session.commit()


async def say(connection: asyncpg.Connection, word: str) -> None:
    await connection.execute(f"NOTIFY {CHANNEL}, '{word}'")


async def test_a_commit_with_an_event_is_told(engine: AsyncEngine, ear: Ear) -> None:
    await commit_one(session_factory(engine))
    assert await ear.next() == ""


async def test_a_rollback_and_a_commit_without_events_are_not_told(
    engine: AsyncEngine, ear: Ear, connection: asyncpg.Connection
) -> None:
    async with session_factory(engine)() as session:
        session.sync_session.outbox.emit(ProfileCreated(uuid4(), uuid4()))  # type: ignore[attr-defined]  # captured
        await session.flush()
        await session.rollback()
        await session.execute(text("SELECT 1"))
        await session.commit()
    await say(connection, "that was all")
    assert await ear.next() == "that was all"


async def test_sessions_that_leave_it_to_polls_tell_nobody(
    engine: AsyncEngine, ear: Ear, connection: asyncpg.Connection
) -> None:
    await commit_one(session_factory(engine, wake_up=False))
    await say(connection, "that was all")
    assert await ear.next() == "that was all"


async def test_a_burst_is_told_together_and_its_last_commit_is_not_missed(
    engine: AsyncEngine, ear: Ear
) -> None:
    sessions = session_factory(engine)
    heard_at_rows: list[int] = []

    async def count() -> int:
        async with engine.connect() as asking:
            return int(await asking.scalar(text("SELECT count(*) FROM outbox_events")) or 0)

    for _ in range(20):
        await asyncio.gather(*(commit_one(sessions) for _ in range(5)))
    while not heard_at_rows or heard_at_rows[-1] < 100:
        await ear.next()
        heard_at_rows.append(await count())
    assert len(heard_at_rows) < 100


async def test_whoever_commits_goes_on_before_the_relays_are_told(
    engine: AsyncEngine, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10: the first of a burst is told at once, and its commit does not pay for that."""
    order = list[str]()

    async def connects(engine: Engine) -> Any:
        order.append("tells")
        return await connect(engine)

    monkeypatch.setattr(loop_bell, "connect", connects)
    await commit_one(session_factory(engine))
    order.append("went on")
    assert await ear.next() == ""
    assert order == ["went on", "tells"]


async def test_what_rings_while_the_bell_hangs_up_is_told(
    engine: AsyncEngine, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10: after a quiet while it lets its connection go, and a commit may come just then."""
    monkeypatch.setattr(loop_bell, "LINGER_SECONDS", 0.0)
    closes, hangs_up, go = asyncpg.Connection.close, asyncio.Event(), asyncio.Event()

    async def close(self: asyncpg.Connection, **options: float) -> None:
        hangs_up.set()
        await go.wait()
        await closes(self, **options)

    monkeypatch.setattr(asyncpg.Connection, "close", close)
    wake_relays(engine.sync_engine, CHANNEL)
    await ear.next()
    await hangs_up.wait()
    wake_relays(engine.sync_engine, CHANNEL)
    go.set()
    await ear.next()


async def test_a_server_that_takes_no_leave_is_left_all_the_same(
    engine: AsyncEngine, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10, R12: with no error, and the next commit is told on a new connection."""
    monkeypatch.setattr(loop_bell, "LINGER_SECONDS", 0.0)
    left: list[asyncpg.Connection] = []

    async def close(self: asyncpg.Connection, **options: float) -> None:
        left.append(self)
        raise TimeoutError

    monkeypatch.setattr(asyncpg.Connection, "close", close)
    for _ in range(2):
        wake_relays(engine.sync_engine, CHANNEL)
        [task] = [task for task in asyncio.all_tasks() if task.get_name() == "outbox-wake-up"]
        assert await ear.next() == ""
        await task
    monkeypatch.undo()
    one, other = left
    assert one is not other
    assert one.is_closed()
    assert other.is_closed()


async def test_a_bell_that_is_cancelled_while_it_tells_says_it_as_its_last_word(
    engine: AsyncEngine, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10."""
    tells, go = asyncio.Event(), asyncio.Event()
    opens = connect

    async def connect_slowly(engine: Engine) -> asyncpg.Connection:
        if not tells.is_set():
            tells.set()
            await go.wait()
        return await opens(engine)

    monkeypatch.setattr(loop_bell, "connect", connect_slowly)
    wake_relays(engine.sync_engine, CHANNEL)
    await tells.wait()
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == "outbox-wake-up"]
    task.cancel()
    await asyncio.wait([task])
    await ear.next()


async def test_a_database_that_cannot_be_told_is_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R10, R12: and no error to whoever committed."""
    engine = create_engine("postgresql://nobody@127.0.0.1:1/nothing")
    with caplog.at_level(logging.INFO, logger="outbox.wake_up"):
        wake_relays(engine.sync_engine, CHANNEL)
        await until(lambda: _is_said(caplog))
    await engine.dispose()


async def _is_said(caplog: pytest.LogCaptureFixture) -> bool:
    return "find it at their next poll" in caplog.text


def test_without_a_loop_nobody_is_rung() -> None:
    """R10: a relay finds it at its next poll."""
    wake_relays(create_engine("postgresql://nobody@127.0.0.1:1/nothing").sync_engine, CHANNEL)


async def test_a_commit_survives_that_nobody_can_be_told(
    engine: AsyncEngine, connection: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = session_factory(engine)
    await commit_one(sessions)
    with caplog.at_level(logging.INFO, logger="outbox.wake_up"):
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'NOTIFY%' AND pid <> pg_backend_pid()"
        )
        await commit_one(sessions)
    assert await connection.fetchval("SELECT count(*) FROM outbox_events") == 2


PROGRAM = """
import asyncio, sys
from uuid import uuid4
from sqlalchemy.pool import NullPool
from contexts.profiles.events import ProfileCreated
from outbox_kernel.infrastructure.database import create_engine, session_factory

async def program():
    engine = create_engine(sys.argv[1], **{options})
    async with session_factory(engine)() as session:
        session.sync_session.outbox.emit(ProfileCreated(uuid4(), uuid4()))
        await session.commit()
        {end}

asyncio.run(program())
"""
ENDS = {
    "it returns": ("{}", "return"),
    "it exits": ("{}", "sys.exit(0)"),
    "it disposes of its engine": ("{}", "await engine.dispose()"),
    # Then nothing is awaited between the commit and the end.
    "it disposes of an engine without a pool": ("{'poolclass': NullPool}", "engine.sync_engine.dispose()"),
}


@pytest.mark.parametrize("end", ENDS)
async def test_the_last_commit_of_a_program_is_told(
    end: str, engine: AsyncEngine, ear: Ear, connection: asyncpg.Connection, empty_postgres_url: str
) -> None:
    """R10: what rings when the process is about to end is said before it ends."""
    options, statement = ENDS[end]
    text = PROGRAM.replace("{options}", options).replace("{end}", statement)
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", text, empty_postgres_url), cwd=ROOT, env=environment_with()
    )
    assert await program.wait() == 0
    # What is said after this, on a connection that was here before, would be heard after it.
    await say(connection, "the end")
    assert await ear.next() == ""


async def test_a_disposed_engine_holds_no_connection(
    engine: AsyncEngine, ear: Ear, connection: asyncpg.Connection, empty_postgres_url: str
) -> None:
    await commit_one(session_factory(engine))
    await ear.next()
    await engine.dispose()
    await connection.close()
    name = make_url(empty_postgres_url).database
    admin = await asyncpg.connect(empty_postgres_url, database="postgres")
    for old, new in ((name, f"{name}_"), (f"{name}_", name)):  # refused while anybody is connected
        await admin.execute(f'ALTER DATABASE "{old}" RENAME TO "{new}"')
    await admin.close()


async def test_telling_the_relays_slows_no_statement_of_the_engine(engine: AsyncEngine, ear: Ear) -> None:
    """SQLAlchemy asks at each statement who listens, once anybody does; nobody but the application may cause that."""
    await commit_one(session_factory(engine))
    await ear.next()
    assert not engine.sync_engine._has_events  # noqa: SLF001 - what SQLAlchemy itself looks at
    assert not engine.dialect._has_events  # noqa: SLF001 - as above


async def test_whoever_listens_to_all_engines_afterwards_hears_of_this_one_too(
    engine: AsyncEngine, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10: tracing may be set up after the first commit."""
    heard: list[str] = []

    def listen(_: object, __: object, statement: str, *___: object) -> None:
        heard.append(statement)

    await commit_one(session_factory(engine))
    await ear.next()
    monkeypatch.setattr(Engine, "_has_events", False)  # which nothing takes back when a listener goes
    event.listen(Engine, "before_cursor_execute", listen)
    await commit_one(session_factory(engine))
    event.remove(Engine, "before_cursor_execute", listen)
    assert any("INSERT INTO outbox_events" in statement for statement in heard)


async def test_whoever_listens_to_the_engine_already_is_heard_as_before(
    engine: AsyncEngine, ear: Ear
) -> None:
    heard: list[str] = []

    def listen(_: object, __: object, statement: str, *___: object) -> None:
        heard.append(statement)

    event.listen(engine.sync_engine, "before_cursor_execute", listen)
    for _ in range(2):
        await commit_one(session_factory(engine))
        await ear.next()
    assert sum("INSERT INTO outbox_events" in statement for statement in heard) == 2


async def test_engines_made_of_one_with_other_options_share_its_bell(
    engine: AsyncEngine, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10: one for each tenant, say; they have one pool, and end with it."""
    monkeypatch.setattr(loop_bell, "LINGER_SECONDS", 3_600.0)
    for tenant in ("ada", "eve"):
        of_tenant = engine.execution_options(tenant=tenant).execution_options(logging_token=tenant)
        await commit_one(session_factory(of_tenant))
        await ear.next()
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == "outbox-wake-up"]
    await engine.dispose()
    async with asyncio.timeout(10):
        await asyncio.wait([task])


async def test_the_end_of_one_engine_is_not_that_of_anothers_bell(
    engine: AsyncEngine, ear: Ear, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10."""
    monkeypatch.setattr(loop_bell, "LINGER_SECONDS", 3_600.0)
    other = create_engine(empty_postgres_url)
    for each in (engine, other):
        wake_relays(each.sync_engine, CHANNEL)
        await ear.next()
    tasks = [task for task in asyncio.all_tasks() if task.get_name() == "outbox-wake-up"]
    await other.dispose()
    ended, ringing = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert (len(ended), len(ringing)) == (1, 1)


def test_a_bell_that_has_hung_up_holds_neither_its_engine_nor_its_loop(empty_postgres_url: str) -> None:
    """R10: a process may make many of both, as a suite of tests does."""

    async def program() -> list[weakref.ref[object]]:
        engine = create_engine(empty_postgres_url)
        wake_relays(engine.sync_engine, CHANNEL)
        await engine.dispose()
        return [weakref.ref(engine.sync_engine), weakref.ref(asyncio.get_running_loop())]

    held = servers.run(program())
    gc.collect()
    assert [each() for each in held] == [None, None]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the connection, which nobody can close any more
def test_a_loop_that_is_closed_over_a_bell_is_free_to_go(empty_postgres_url: str) -> None:
    """R10: as by a program that runs its own loop and cancels nothing."""

    async def program() -> weakref.ref[object]:
        ear, connection = Ear(), await asyncpg.connect(empty_postgres_url)
        await connection.add_listener(CHANNEL, ear.hear)
        engine = create_engine(empty_postgres_url)
        wake_relays(engine.sync_engine, CHANNEL)
        await ear.next()
        await connection.close()
        return weakref.ref(engine.sync_engine)

    loop = asyncio.new_event_loop()
    held = loop.run_until_complete(program())
    loop.close()
    gc.collect()
    assert held() is None


class Unanswered:
    """A line to a server that does not answer, and that can only be hung up while its loop is open."""

    said: asyncio.Event

    def is_closed(self) -> bool:
        return False

    async def say(self, _statement: str) -> None:
        self.said.set()
        await asyncio.Event().wait()

    def drop(self) -> None:
        asyncio.get_running_loop()


def test_a_loop_that_is_closed_while_a_bell_waits_for_its_answer_is_free_to_go(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10: a bell that said farewell then, as one that is cancelled does, was a coroutine that cannot be ended."""

    async def unanswered(*_: object) -> Unanswered:
        return line

    async def program() -> weakref.ref[object]:
        line.said = asyncio.Event()
        engine = create_engine(empty_postgres_url)
        wake_relays(engine.sync_engine, CHANNEL)
        await line.said.wait()
        return weakref.ref(engine.sync_engine)

    line = Unanswered()
    monkeypatch.setattr(loop_bell, "connect", unanswered)
    monkeypatch.setattr(loop_bell, "_line_by", lambda found: found)
    loop = asyncio.new_event_loop()
    held = loop.run_until_complete(program())
    loop.close()
    gc.collect()
    assert held() is None


# --- the relay's ear --------------------------------------------------------------------------------------


@pytest.fixture
async def listener(engine: AsyncEngine) -> AsyncIterator[tuple[Listener, asyncio.Queue[None]]]:
    heard: asyncio.Queue[None] = asyncio.Queue()
    line = Line(engine)
    listener = Listener(engine, CHANNEL, lambda _: heard.put_nowait(None), line)
    task = asyncio.create_task(listener.run())
    yield listener, heard
    task.cancel()
    await asyncio.wait([task])
    await line.close()


async def hears(heard: asyncio.Queue[None]) -> None:
    async with asyncio.timeout(20):
        await heard.get()


async def test_a_listener_that_has_proven_itself_looks_at_once_and_then_hears(
    listener: tuple[Listener, asyncio.Queue[None]], connection: asyncpg.Connection
) -> None:
    ear, heard = listener
    await hears(heard)
    assert ear.counts.hears
    await say(connection, "")
    await hears(heard)


async def test_a_channel_with_capitals_is_heard(engine: AsyncEngine, connection: asyncpg.Connection) -> None:
    """R10, R15: as it is written, both ways."""
    channel, ear, heard = "Outbox_Channel", Ear(), asyncio.Queue[None]()
    await connection.add_listener(channel, ear.hear)
    wake_relays(engine.sync_engine, channel)
    assert await ear.next() == ""
    line = Line(engine)
    task = asyncio.create_task(Listener(engine, channel, lambda _: heard.put_nowait(None), line).run())
    await hears(heard)
    task.cancel()
    await asyncio.wait([task])
    await line.close()


async def test_a_listener_whose_connection_is_cut_listens_again_and_looks_for_what_it_missed(
    listener: tuple[Listener, asyncio.Queue[None]],
    connection: asyncpg.Connection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, heard = listener
    await hears(heard)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND (query LIKE 'LISTEN%' OR query LIKE 'NOTIFY%') "
        "AND pid <> pg_backend_pid()"
    )
    await hears(heard)
    assert any(
        "does not hear of commits and polls meanwhile" in record.getMessage() for record in caplog.records
    )


async def test_a_listener_behind_a_pooler_says_that_it_is_deaf(
    engine: AsyncEngine, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10: the pooler takes LISTEN, and hands what the listener itself says back to it; of others it hears nothing."""
    async with pooler_before(empty_postgres_url) as pooled_url:
        await says_that_it_is_deaf(create_engine(pooled_url, poolclass=NullPool), engine, monkeypatch)


async def test_a_listener_at_a_database_in_which_nobody_commits_says_that_it_is_deaf(
    engine: AsyncEngine, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10, R15: OUTBOX_LISTEN_URL names another one."""
    elsewhere = make_url(empty_postgres_url).set(database="postgres", drivername="postgresql+asyncpg")
    await says_that_it_is_deaf(create_engine(elsewhere, poolclass=NullPool), engine, monkeypatch)


async def says_that_it_is_deaf(
    listens_at: AsyncEngine, says_at: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_kernel.infrastructure.relay.listener.LISTENER_ANSWER_SECONDS_MAX", 0.5)
    said: asyncio.Queue[str] = asyncio.Queue()

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.put_nowait(record.getMessage())

    notes, line = Notes(), Line(says_at)
    logging.getLogger("outbox.relay").addHandler(notes)
    listener = Listener(listens_at, CHANNEL, said.put_nowait, line)
    task = asyncio.create_task(listener.run())
    async with asyncio.timeout(10):
        first = await said.get()
    assert "point OUTBOX_LISTEN_URL at the server itself" in first
    assert not listener.counts.hears
    task.cancel()
    await asyncio.wait([task])
    logging.getLogger("outbox.relay").removeHandler(notes)
    await line.close()
