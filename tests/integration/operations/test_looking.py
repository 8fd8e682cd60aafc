"""Who looks can change nothing, keeps nobody waiting, and takes no longer than a moment (O3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.operations import looking as module
from outbox_kernel.infrastructure.operations.looking import TookTooLong, TooManyLook, looking
from outbox_kernel.infrastructure.outbox.sql.named import Statement
from outbox_kernel.infrastructure.settings import Settings
from tests.integration.operations.conftest import Outbox

SETTINGS = Settings()


@pytest.fixture
async def engine(outbox_url: str) -> AsyncIterator[AsyncEngine]:
    made = create_engine(outbox_url, pool_size=1, max_overflow=0, pool_timeout=0.05)
    yield made
    await made.dispose()


async def test_it_sees_one_moment_of_it_all(engine: AsyncEngine, outbox: Outbox) -> None:
    async with looking(engine, SETTINGS) as desk:
        count = "SELECT count(*) FROM {outbox_events}"
        assert (await desk.run(Statement(count)))[0][0] == 0
        await outbox.event()
        assert (await desk.run(Statement(count)))[0][0] == 0


async def test_it_can_change_nothing(engine: AsyncEngine) -> None:
    with pytest.raises(Exception, match="read-only transaction"):
        async with looking(engine, SETTINGS) as desk:
            await desk.run(Statement("DELETE FROM {outbox_events}"))


async def test_what_takes_too_long_is_given_up(engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with looking(engine, SETTINGS) as desk:
        assert (await desk.run(Statement("SHOW statement_timeout")))[0][0] == "2s"
    monkeypatch.setattr(module, "LOOK_SECONDS_MAX", 0.1)
    with pytest.raises(TookTooLong, match=r"did not answer within 0\.1 s"):
        async with looking(engine, SETTINGS) as desk:
            await desk.run(Statement("SELECT pg_sleep(10)"))
    monkeypatch.undo()
    async with looking(engine, SETTINGS) as desk:
        assert (await desk.run(Statement("SELECT 1")))[0][0] == 1


async def test_where_too_many_look_it_is_said(engine: AsyncEngine) -> None:
    async with looking(engine, SETTINGS):
        with pytest.raises(TooManyLook, match="all connections of the dashboard are in use"):
            async with looking(engine, SETTINGS):
                pass


async def test_a_database_that_is_gone_is_said_and_found_again(engine: AsyncEngine, outbox: Outbox) -> None:
    with pytest.raises(DatabaseUnreachable):
        async with looking(engine, SETTINGS) as desk:
            pid = (await desk.run(Statement("SELECT pg_backend_pid()")))[0][0]
            await outbox.execute("SELECT pg_terminate_backend($1)", pid)
            await desk.run(Statement("SELECT 1"))
    async with looking(engine, SETTINGS) as desk:
        assert (await desk.run(Statement("SELECT 1")))[0][0] == 1


async def test_a_mistake_of_ours_keeps_its_own_words(engine: AsyncEngine) -> None:
    with pytest.raises(asyncpg.DivisionByZeroError):
        async with looking(engine, SETTINGS) as desk:
            await desk.run(Statement("SELECT 1 / 0"))


async def test_wherever_a_look_is_cancelled_the_next_ones_see_all_of_it(
    engine: AsyncEngine, outbox: Outbox
) -> None:
    """A BEGIN that was cancelled and happened all the same was the next look's transaction, and the one's after it."""

    async def look() -> int:
        async with looking(engine, SETTINGS) as desk:
            count: int = (await desk.run(Statement("SELECT count(*) FROM {outbox_events}")))[0][0]
            return count

    await look()
    turns, events, cancelled = 0, 0, 0
    while True:
        begun = asyncio.create_task(look())
        for _ in range(turns):
            await asyncio.sleep(0)
        if begun.done():
            break
        begun.cancel()
        [ended] = await asyncio.gather(begun, return_exceptions=True)
        cancelled += isinstance(ended, asyncio.CancelledError)
        await outbox.event()
        events += 1
        assert [await look(), await look()] == [events, events], f"cancelled after {turns} turns of the loop"
        turns += 1
    assert cancelled
