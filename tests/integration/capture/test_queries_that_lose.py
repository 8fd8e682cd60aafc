"""C4: a query can lose a race as a write can, and is told of it in the same way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from outbox_kernel.errors import ConcurrencyError
from outbox_kernel.kernel import retry_on_conflict
from tests.bank import Bank, loaded
from tests.domain import Wallet, journal, wallets


async def by_get(session: AsyncSession, wallet_id: UUID) -> None:
    await session.get(Wallet, wallet_id, with_for_update=True)


async def by_scalars(session: AsyncSession, _: UUID) -> None:
    await session.scalars(select(Wallet).with_for_update())


async def by_core_statement(session: AsyncSession, wallet_id: UUID) -> None:
    await session.execute(update(wallets).where(wallets.c.id == wallet_id).values(balance=2))


@pytest.mark.parametrize("query", [by_get, by_scalars, by_core_statement])
async def test_a_serialization_failure_of_a_query_is_a_conflict(
    bank: Bank, query: Callable[[AsyncSession, UUID], Awaitable[None]]
) -> None:
    """C4: so that what is wrapped to retry does so, whichever statement was the first to meet it."""
    wallet_id, attempts = await bank.open_wallet(), 0

    @retry_on_conflict
    async def use_case() -> None:
        nonlocal attempts
        attempts += 1
        async with bank.session() as session:
            _ = await session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            await session.execute(select(journal))
            if attempts == 1:
                async with bank.session() as rival:
                    (await loaded(rival, wallet_id)).balance = 1
                    await rival.commit()
            await query(session, wallet_id)
            await session.commit()

    await use_case()
    assert attempts == 2


async def by_get_one(session: AsyncSession, wallet_id: UUID) -> None:
    await session.get_one(Wallet, wallet_id, with_for_update=True)


@pytest.mark.parametrize("lock", [by_get, by_get_one])
async def test_a_lock_on_what_another_has_changed_since_is_a_conflict(
    bank: Bank, lock: Callable[[AsyncSession, UUID], Awaitable[None]]
) -> None:
    """C4: SQLAlchemy compares the locked row with the object at hand; the rest of the session serves on."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        async with bank.session() as rival:
            (await loaded(rival, wallet_id)).pay(1)
            await rival.commit()
        with pytest.raises(ConcurrencyError, match="another transaction changed"):
            await lock(session, wallet_id)
        await session.refresh(wallet, with_for_update=True)
        wallet.pay(2)
        await session.commit()
    assert await bank.row(wallet_id) == (3, 3)


async def test_a_taken_key_in_a_core_statement_stays_the_databases_error(bank: Bank) -> None:
    """C5: whoever writes past the ORM asks for what it says."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        with pytest.raises(IntegrityError):
            await session.execute(insert(wallets).values(id=wallet_id, owner="eve", balance=0))
