"""C6: what an application has hung on its engine meets the outbox's insert like any other statement."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session

from outbox_kernel.errors import ConcurrencyError
from outbox_kernel.infrastructure.outbox import install_capture
from outbox_kernel.infrastructure.outbox.executing import execute
from tests.bank import Bank, loaded
from tests.domain import Wallet


def engine_of(url: str, **options: Any) -> AsyncEngine:
    return create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), **options)


@pytest_asyncio.fixture
async def engine(bank_url: str) -> AsyncIterator[AsyncEngine]:
    engine = engine_of(bank_url)
    yield engine
    await engine.dispose()


async def open_wallet(engine: AsyncEngine) -> None:
    async with Bank.on(engine).session() as session:
        session.add(Wallet.open("ada"))
        await session.commit()


async def test_a_listener_hears_of_the_insert_with_its_context(bank: Bank, engine: AsyncEngine) -> None:
    """Tracing hangs its span on the context."""
    heard = []

    def listen(
        _connection: object, _cursor: object, statement: str, _: object, context: Any, _many: object
    ) -> None:
        context.span = statement
        heard.append(statement)

    event.listen(engine.sync_engine, "before_cursor_execute", listen)
    await open_wallet(engine)
    assert [statement for statement in heard if "INSERT INTO outbox_events" in statement]
    assert await bank.outbox() == ["1 ada"]


async def test_an_engine_that_echoes_shows_the_insert(
    bank: Bank, bank_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "sqlalchemy.engine"):
        engine = engine_of(bank_url, logging_name="seen", hide_parameters=True)
        await open_wallet(engine)
        await engine.dispose()
    assert "INSERT INTO outbox_events" in caplog.text
    assert await bank.outbox() == ["1 ada"]


class Cut(asyncpg.Connection):
    """A connection whose network fails under the insert of events."""

    async def prepare(self, query: str, **options: Any) -> Any:
        if "INSERT INTO outbox_events" in query:
            raise OSError("no route to host")
        return await super().prepare(query, **options)


async def test_an_error_that_is_no_databases_comes_as_it_is(bank: Bank, bank_url: str) -> None:
    """Whoever looks out for it by its own name finds it, and no payload is written into its text."""
    engine = engine_of(bank_url, connect_args={"connection_class": Cut})
    with pytest.raises(OSError, match=r"^no route to host$"):
        await open_wallet(engine)
    await engine.dispose()
    assert await bank.outbox() == []


# --- sessions that choose their engines -------------------------------------------------------------------


@pytest_asyncio.fixture
async def nowhere() -> AsyncIterator[AsyncEngine]:
    """An engine whose server is not there, so that whoever writes by it fails."""
    engine = engine_of("postgresql://nobody@127.0.0.1:1/nothing")
    yield engine
    await engine.dispose()


async def test_a_session_that_routes_by_mapper_is_asked_as_a_flush_asks_it(
    bank: Bank, engine: AsyncEngine, nowhere: AsyncEngine
) -> None:
    """C6: SQLAlchemy's documented example reads `mapper.class_`."""

    class RoutingSession(Session):
        def get_bind(self, mapper: Any = None, **_: Any) -> Engine:
            if mapper and issubclass(mapper.class_, Wallet):
                return engine.sync_engine
            return nowhere.sync_engine

    maker = install_capture(async_sessionmaker(sync_session_class=RoutingSession, expire_on_commit=False))
    async with maker() as session:
        wallet = Wallet.open("ada")
        session.add(wallet)
        await session.commit()
        event.listen(session.sync_session, "before_flush", lambda *_: wallet.note("late"), once=True)
        wallet.note("soon")
        await session.commit()
    assert await bank.outbox() == ["1 ada", "2 soon", "3 late"]


async def test_a_session_that_writes_to_a_leader_writes_all_its_events_there(
    bank: Bank, engine: AsyncEngine, nowhere: AsyncEngine
) -> None:
    """C6: SQLAlchemy's documented example knows by `_flushing` that it writes."""

    class RoutingSession(Session):
        def get_bind(self, mapper: Any = None, **_: Any) -> Engine:
            return engine.sync_engine if self._flushing else nowhere.sync_engine

    maker = install_capture(async_sessionmaker(sync_session_class=RoutingSession, expire_on_commit=False))
    async with maker() as session:
        event.listen(
            session.sync_session, "after_flush_postexec", lambda *_: bank.emit(session, "late"), once=True
        )
        session.add(Wallet.open("ada"))
        await session.commit()
    assert await bank.outbox() == ["1 ada", "- late"]


# --- listeners of the dialect -----------------------------------------------------------------------------


async def test_whoever_executes_in_the_drivers_place_gets_the_context(
    bank: Bank, engine: AsyncEngine
) -> None:
    """Whatever takes a statement over looks at its execution options."""
    heard: list[str] = []

    def do_execute(_cursor: object, statement: str, _: object, context: Any) -> None:
        assert context.execution_options is not None
        heard.append(statement)

    event.listen(engine.sync_engine, "do_execute", do_execute)
    await open_wallet(engine)
    assert [statement for statement in heard if "INSERT INTO outbox_events" in statement]
    assert await bank.outbox() == ["1 ada"]


async def test_a_listener_to_errors_gets_the_context_of_the_insert(bank: Bank, engine: AsyncEngine) -> None:
    contexts = []
    event.listen(engine.sync_engine, "handle_error", lambda error: contexts.append(error.execution_context))
    wallet_id = await bank.open_wallet()
    async with Bank.on(engine).session() as session:
        (await loaded(session, wallet_id)).note("second")
        async with bank.session() as rival:
            (await loaded(rival, wallet_id)).note("first")
            await rival.commit()
        with pytest.raises(ConcurrencyError):
            await session.commit()
    assert None not in contexts
    assert len(contexts) == 1


async def test_a_connection_outside_a_transaction_begins_one(engine: AsyncEngine) -> None:
    """Or what it executes would be nobody's to roll back."""
    async with engine.connect() as connection:
        assert await connection.run_sync(execute, "SELECT 1", ()) == 1
        assert connection.in_transaction()
