"""The one connection of an atomic run: whoever asks for it, holds on to it or fails on it harms no other (R6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Sequence, Table, Text, insert, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.pool import NullPool

from outbox_kernel.infrastructure.errors import NotOneTransaction
from outbox_kernel.infrastructure.outbox import install_capture
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.domain import journal
from tests.relaying import Stage, handler

numbered = Table(
    "bank_numbered",
    MetaData(),
    Column("id", Integer, Sequence("bank_numbers"), primary_key=True),
    Column("line", Text),
    implicit_returning=False,  # so that SQLAlchemy asks the sequence first
)


def line(what: str) -> Any:
    return insert(journal).values(line=what)


def atomic(act: Any, **options: Any) -> HandlerRegistration:
    return handler("h", act, atomic=True, **options)


async def error_of(stage: Stage) -> str:
    return str((await stage.status("a"))["error_message"])


async def assert_done(stage: Stage, *lines: str) -> None:
    assert await stage.journal() == sorted(lines)
    assert await stage.receipts() == [("a", "h", "done")]


@asynccontextmanager
async def table_of_numbers(stage: Stage) -> AsyncIterator[None]:
    async with stage.engine.begin() as connection:
        await connection.run_sync(numbered.metadata.create_all)
    yield
    async with stage.engine.begin() as connection:
        await connection.run_sync(numbered.metadata.drop_all)


@pytest.mark.parametrize("pool", [{"poolclass": NullPool}, {"pool_size": 1, "max_overflow": -1}])
async def test_where_an_engine_makes_any_number_of_connections_no_run_waits_for_another(
    stage: Stage, pool: dict[str, Any]
) -> None:
    """R6."""
    engine = create_async_engine(stage.engine.url, **pool)
    sessions, all_inside = install_capture(async_sessionmaker(engine)), asyncio.Barrier(3)

    async def act(event: Any) -> None:
        async with sessions.begin() as session:
            await session.execute(line(event.what))
            await all_inside.wait()

    await stage.put("a", "b", "c")
    await stage.drain(atomic(act, ordered=False))
    await engine.dispose()
    assert sorted(await stage.journal()) == ["a", "b", "c"]


async def test_a_connection_that_cannot_be_made_as_asked_is_given_back_and_the_next_one_taken(
    stage: Stage,
) -> None:
    """R6: what the handler bears, its run does."""
    seen: list[int] = []

    async def act(event: Any) -> None:
        pool: Any = stage.engine.pool
        before = pool.checkedout()
        async with stage.sessions() as session:
            with pytest.raises(ArgumentError, match="NO SUCH LEVEL"):
                _ = await session.connection(execution_options={"isolation_level": "NO SUCH LEVEL"})
            seen.append(pool.checkedout() - before)
        await stage.enter("here")

    await stage.put("a")
    await stage.drain(atomic(act))
    assert seen == [0]
    await assert_done(stage, "here")


async def test_a_statement_that_sqlalchemy_sends_for_the_sake_of_another_does_not_wait_for_its_turn(
    stage: Stage,
) -> None:
    """R6: beside other tasks, which do."""

    async def number(what: str) -> None:
        async with stage.sessions.begin() as session:
            await session.execute(insert(numbered).values(line=what))
            await session.execute(line(what))

    async def act(event: Any) -> None:
        async with asyncio.timeout(10):
            await number("first")
            await number("second")

    async with table_of_numbers(stage):
        await stage.put("a")
        await stage.drain(atomic(act))
        async with stage.engine.connect() as connection:
            rows = [tuple(row) for row in await connection.execute(select(numbered))]
    assert rows == [(1, "first"), (2, "second")]
    await assert_done(stage, "first", "second")


async def test_a_connection_that_is_kept_says_why_nothing_can_be_sent_any_more(stage: Stage) -> None:
    """R6: once the run is broken."""
    told: list[str] = []

    async def act(event: Any) -> None:
        async with stage.sessions() as kept, stage.sessions() as outer:
            connection = await kept.connection()
            await outer.execute(line("never"))
            await stage.enter("never, either")
            await outer.rollback()
            with pytest.raises(NotOneTransaction) as refused:
                await connection.execute(line("nor this"))
            told.append(str(refused.value))

    await stage.put("a")
    await stage.drain(atomic(act))
    assert (await stage.journal(), await stage.receipts()) == ([], [])
    [sentence] = told
    assert sentence in await error_of(stage)


async def test_a_connection_that_is_kept_writes_for_the_run_when_no_session_is_open(stage: Stage) -> None:
    """R6."""

    async def act(event: Any) -> None:
        async with stage.sessions() as session:
            connection = await session.connection()
            await session.execute(line("by the session"))
            await session.commit()
        await connection.execute(line("by the connection"))

    await stage.put("a")
    await stage.drain(atomic(act))
    await assert_done(stage, "by the session", "by the connection")


async def test_a_session_that_has_sent_nothing_takes_nothing_along(stage: Stage) -> None:
    """R6: the server knows nothing of it."""

    async def act(event: Any) -> None:
        async with stage.sessions() as silent:
            _ = await silent.connection()
            await stage.enter("beside")
            await silent.rollback()

    await stage.put("a")
    await stage.drain(atomic(act))
    await assert_done(stage, "beside")


async def fails_at_the_server(session: AsyncSession) -> None:
    await session.execute(text("SELECT 1 / 0"))


async def fails_at_the_driver(session: AsyncSession) -> None:
    await session.execute(text("SELECT CAST(:number AS int)"), {"number": "no number"})


@pytest.mark.parametrize("fails", [fails_at_the_server, fails_at_the_driver])
async def test_a_session_may_end_while_the_failure_of_another_is_yet_to_be_taken_back(
    stage: Stage, fails: Any
) -> None:
    """R6: whether the statement has reached the server, or was refused before."""

    async def act(event: Any) -> None:
        await stage.enter("before")
        async with stage.sessions() as reading, stage.sessions() as failing:
            await reading.scalars(select(journal))
            with pytest.raises(DBAPIError):
                await fails(failing)
            await reading.rollback()
            await failing.rollback()
        await stage.enter("after")

    await stage.put("a")
    await stage.drain(atomic(act))
    await assert_done(stage, "before", "after")
