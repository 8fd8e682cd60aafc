"""C9: whatever moves the application's tables, and whatever hands out its sessions, over every driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.schema import CreateSchema, DropSchema

from outbox_kernel.infrastructure.outbox import (
    OutboxEventDispatcher,
    bus_of,
    install_capture,
)
from outbox_kernel.infrastructure.outbox.tables import outbox_events_in
from tests.bank import Bank
from tests.domain import Announced, Wallet, bank_metadata
from tests.drivers import Driver

Sessions = sessionmaker[Session]


TENANTS = ("blue", 'of "Ada" 100%')


@pytest.fixture
async def tenants(bank: Bank) -> AsyncIterator[tuple[str, ...]]:
    """Two schemas with a bank and an outbox of its own in each."""
    async with bank.engine.begin() as connection:
        for tenant in TENANTS:
            await connection.execute(CreateSchema(tenant))
            await connection.run_sync(outbox_events_in(tenant).create, checkfirst=True)
            moved = await connection.execution_options(schema_translate_map={None: tenant})
            await moved.run_sync(bank_metadata.create_all)
    yield TENANTS
    async with bank.engine.begin() as connection:
        for tenant in TENANTS:
            await connection.execute(DropSchema(tenant, cascade=True))


async def stored_in(bank: Bank, schema: str) -> list[str]:
    table = outbox_events_in(schema)
    async with bank.engine.connect() as connection:
        return list(
            await connection.scalars(select(table.c.payload["what"].astext).order_by(table.c.position))
        )


@pytest.mark.parametrize("by", ["engine", "session"])
async def test_the_outbox_follows_a_schema_translate_map(
    bank: Bank, driver: Driver, sessions: Sessions, tenants: tuple[str, ...], by: str
) -> None:
    """C9: where the map moves the application's tables, it moves the outbox with them."""

    def work() -> None:
        for tenant in tenants:
            options = {"schema_translate_map": {None: tenant}}
            engine = driver.engine.execution_options(**options) if by == "engine" else driver.engine
            with sessions(bind=engine) as session:
                if by == "session":
                    session.connection(execution_options=options)
                session.add(Wallet.open(tenant))
                session.commit()

    await driver.run(work)
    assert [await stored_in(bank, tenant) for tenant in tenants] == [[tenant] for tenant in tenants]
    assert await bank.outbox() == []


async def test_an_outbox_in_a_schema_that_the_map_does_not_name_stays_where_it_is(
    bank: Bank, driver: Driver, tenants: tuple[str, ...]
) -> None:
    """C9: so that all tenants may have one outbox."""
    first, second = tenants

    def work() -> None:
        maker = driver.captured(schema=first)
        engine = driver.engine.execution_options(schema_translate_map={None: second})
        with maker(bind=engine) as session:
            session.add(Wallet.open("one"))
            session.commit()
        engine = driver.engine.execution_options(schema_translate_map={None: second, first: None})
        with maker(bind=engine) as session:
            session.add(Wallet.open("two"))
            session.commit()

    await driver.run(work)
    assert await stored_in(bank, first) == ["one"]
    assert await bank.outbox() == ["1 two"]


async def test_the_outbox_is_where_the_search_path_points(
    bank: Bank, driver: Driver, sessions: Sessions, tenants: tuple[str, ...]
) -> None:
    """C9: also where it changes on one connection, for which the statement is prepared already."""

    def work() -> None:
        with sessions() as session:
            for tenant in ("public", *tenants) * 3:
                name = tenant.replace('"', '""')
                session.execute(text(f'SET LOCAL search_path = "{name}"'))
                session.add(Wallet.open(tenant))
                session.commit()

    await driver.run(work)
    assert [await stored_in(bank, tenant) for tenant in tenants] == [[tenant] * 3 for tenant in tenants]
    assert await bank.outbox() == ["1 public"] * 3


# --- scopes -----------------------------------------------------------------------------------------------


async def test_a_scoped_session_captures(bank: Bank, driver: Driver) -> None:
    """C9: the scope is adopted as its maker would be, and returned."""
    scope = scoped_session(driver.sessions(), scopefunc=lambda: "here")
    assert install_capture(scope) is scope

    def work() -> None:
        scope.add(Wallet.open())
        bus_of(scope).emit(Announced("scoped"))
        scope.commit()
        scope.remove()

    await driver.run(work)
    assert await bank.outbox() == ["1 ada", "- scoped"]


@pytest.mark.parametrize("scheme", ["postgresql+asyncpg", "postgresql+psycopg"])
async def test_an_asynchronous_scoped_session_captures(bank: Bank, bank_url: str, scheme: str) -> None:
    """C9, K6: and serves who dispatches by hand."""
    engine = create_async_engine(bank_url.replace("postgresql", scheme, 1))
    scope = install_capture(async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task))
    scope.add(Wallet.open())
    await OutboxEventDispatcher(scope).dispatch([Announced("by hand")])
    await scope.commit()
    await scope.remove()
    await engine.dispose()
    assert await bank.outbox() == ["1 ada", "- by hand"]
