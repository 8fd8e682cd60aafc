"""C6, C10: an aggregate's two columns are mapped, and nobody has added them to its table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import select, text
from sqlalchemy.orm import aliased

from outbox_kernel import SqlAlchemyUnitOfWork
from outbox_kernel.errors import SchemaNotMigrated
from tests.bank import Bank
from tests.drivers import Driver
from tests.market import Order, Told, Vehicle

SENTENCE = (
    "table shop_orders has no column '{column}' in the database, and an aggregate is mapped to it: run `ALTER TABLE "
    "shop_orders ADD COLUMN IF NOT EXISTS version bigint NOT NULL DEFAULT 0` and `ALTER TABLE shop_orders ADD COLUMN "
    "IF NOT EXISTS revision bigint NOT NULL DEFAULT 1`, or let your migrations do so"
)


@pytest_asyncio.fixture(params=["version", "revision"])
async def column(request: pytest.FixtureRequest, shop: Bank) -> AsyncIterator[str]:
    """The column that the shop's tables lack."""
    await forget(shop, "shop_orders", request.param)
    yield request.param


async def forget(shop: Bank, table: str, column: str) -> None:
    async with shop.engine.begin() as connection:
        await connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))


def placed() -> Order:
    order = Order()
    order.place()
    return order


async def commit(session: Any) -> None:
    session.add(placed())
    await session.commit()


async def commit_two(session: Any) -> None:
    session.add_all([placed(), placed()])
    await session.commit()


async def commit_silent(session: Any) -> None:
    session.add(Order())
    await session.commit()


async def commit_with_an_id(session: Any) -> None:
    session.add(order := Order(id=5))
    order.place()
    await session.commit()


async def get(session: Any) -> None:
    await session.get(Order, 1)


async def query(session: Any) -> None:
    await session.scalars(select(Order))


async def query_an_alias(session: Any) -> None:
    await session.scalars(select(aliased(Order)))


@pytest.mark.parametrize(
    "use", [commit, commit_two, commit_silent, commit_with_an_id, get, query, query_an_alias]
)
async def test_a_column_that_nobody_has_added_is_told_with_the_statements_that_add_it(
    shop: Bank, column: str, use: Any
) -> None:
    """C6: by writes and by reads, of whatever kind."""
    async with shop.session() as session:
        with pytest.raises(SchemaNotMigrated) as refused:
            await use(session)
    assert str(refused.value) == SENTENCE.format(column=column)


async def test_the_statements_that_are_told_mend_it(shop: Bank, column: str) -> None:
    """C6: run as they stand."""
    async with shop.session() as session:
        with pytest.raises(SchemaNotMigrated) as refused:
            await commit(session)
    async with shop.engine.begin() as connection:
        for statement in str(refused.value).split("`")[1::2]:
            await connection.execute(text(statement))
    async with shop.session() as session:
        await commit(session)


async def test_the_unit_of_work_tells_it_alike(shop: Bank, column: str) -> None:
    """C6."""
    with pytest.raises(SchemaNotMigrated, match=f"no column '{column}'.*ALTER TABLE shop_orders"):
        async with SqlAlchemyUnitOfWork(shop.sessions) as uow:
            uow.repository(Order).add(placed())
            await uow.commit()
    with pytest.raises(SchemaNotMigrated, match=f"no column '{column}'.*ALTER TABLE shop_orders"):
        async with SqlAlchemyUnitOfWork(shop.sessions) as uow:
            await uow.repository(Order).get(1)


async def test_each_driver_tells_it(shop: Bank, driver: Driver) -> None:
    """C9: asyncpg and psycopg, in a hierarchy too."""
    await forget(shop, "shop_vehicles", "version")
    sessions = driver.captured(expire_on_commit=False)

    def use() -> None:
        with sessions() as session:
            session.add(vehicle := Vehicle())
            vehicle.record(Told("made"))
            session.commit()

    with pytest.raises(SchemaNotMigrated, match="ALTER TABLE shop_vehicles ADD COLUMN"):
        await driver.run(use)


async def test_another_column_that_is_missing_is_the_applications_own_matter(shop: Bank) -> None:
    """C6: its error comes as it is."""
    await forget(shop, "shop_orders", "cents")
    async with shop.session() as session:
        with pytest.raises(Exception, match="cents") as refused:
            await query(session)
    assert type(refused.value).__name__ == "ProgrammingError"
