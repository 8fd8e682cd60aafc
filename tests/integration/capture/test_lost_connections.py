"""C9: what psycopg says of a connection that breaks, or never comes to be, is told in the sentence for it."""

from __future__ import annotations

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine

from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork, create_engine, session_factory
from outbox_kernel.infrastructure.errors import DatabaseMissing, DatabaseUnreachable, LoginRefused
from outbox_kernel.infrastructure.outbox import bus_of, install_capture
from tests.bank import Bank
from tests.domain import Announced, Wallet


async def commit_one(engine: AsyncEngine, *, cut_by: Bank | None = None) -> None:
    async with SqlAlchemyUnitOfWork(install_capture(async_sessionmaker(engine))) as uow:
        uow.repository(Wallet).add(Wallet.open())
        if cut_by is not None:
            backend = await uow.session.scalar(text("SELECT pg_backend_pid()"))
            async with cut_by.engine.connect() as killer:
                await killer.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": backend})
        await uow.commit()


async def test_a_connection_that_is_cut_is_an_unreachable_database(bank: Bank, bank_url: str) -> None:
    engine = create_async_engine(bank_url.replace("postgresql://", "postgresql+psycopg://"))
    with pytest.raises(DatabaseUnreachable, match=r"a connection to PostgreSQL at .* was lost"):
        await commit_one(engine, cut_by=bank)
    await commit_one(engine)
    await engine.dispose()
    assert await bank.outbox() == ["1 ada"]


async def test_a_server_that_is_not_there_is_an_unreachable_database() -> None:
    engine = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    with pytest.raises(
        DatabaseUnreachable, match=r"no PostgreSQL answers at 127\.0\.0\.1:1 \(connection refused\)"
    ):
        await commit_one(engine)
    await engine.dispose()


async def test_a_database_that_is_not_there_is_named(bank_url: str) -> None:
    url = make_url(bank_url).set(drivername="postgresql+psycopg", database="nowhere")
    engine = create_async_engine(url)
    with pytest.raises(DatabaseMissing, match='has no database "nowhere": create it'):
        await commit_one(engine)
    await engine.dispose()


async def test_a_user_that_is_not_let_in_is_told_so(bank_url: str) -> None:
    url = make_url(bank_url).set(drivername="postgresql+psycopg", username="no_such_user")
    engine = create_async_engine(url)
    with pytest.raises(LoginRefused, match='does not let user "no_such_user" in'):
        await commit_one(engine)
    await engine.dispose()


async def test_a_limit_of_the_drivers_own_comes_out_as_the_driver_said_it(bank: Bank, bank_url: str) -> None:
    """C5: with no statement and no payload around it."""
    engine = create_engine(bank_url, connect_args={"command_timeout": 0.3})
    async with session_factory(engine)() as session, bank.engine.begin() as stranger:
        await stranger.execute(text("LOCK TABLE outbox_events IN ACCESS EXCLUSIVE MODE"))
        bus_of(session).emit(Announced("never"))
        with pytest.raises(TimeoutError) as raised:
            await session.commit()
        await session.rollback()
    await engine.dispose()
    assert (str(raised.value), await bank.outbox()) == ("", [])
