"""C6: what an application has hung on its engine meets the outbox's insert like any other statement."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tests.bank import Bank
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
