"""C3: a use case that is cancelled, or loses its connection, stores all or nothing and says which."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import PendingRollbackError

from outbox_kernel.errors import StaleAggregate
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from tests.bank import Bank, loaded
from tests.domain import Announced, Wallet


@asynccontextmanager
async def locked(bank: Bank, wallet_id: UUID) -> AsyncIterator[None]:
    """Another transaction holds the wallet's row, so whoever writes it waits."""
    async with bank.engine.begin() as connection:
        await connection.execute(
            text("SELECT FROM bank_wallets WHERE id = :id FOR UPDATE"), {"id": wallet_id}
        )
        yield


async def waiting_backend(bank: Bank) -> int:
    """The backend that waits for a lock, as soon as there is one."""
    query = text(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    async with bank.engine.connect() as connection, asyncio.timeout(10):
        while (pid := await connection.scalar(query)) is None:
            await connection.rollback()
        return int(pid)


async def terminate(bank: Bank, pid: int) -> None:
    async with bank.engine.connect() as connection:
        await connection.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": pid})


async def pay_and_open(bank: Bank, wallet_id: UUID, touched: list[Wallet]) -> None:
    """A use case with a loaded aggregate, a new one and an emitted event."""
    async with SqlAlchemyUnitOfWork(bank.sessions) as uow:
        wallet = await uow.repository(Wallet).get(wallet_id)
        assert wallet is not None
        wallet.pay(1)
        touched += [wallet, Wallet.open("born")]
        uow.repository(Wallet).add(touched[1])
        uow.emit(Announced("paid"))
        await uow.commit()


async def assert_given_up(bank: Bank, wallet: Wallet, born: Wallet) -> None:
    """Nothing was stored; the loaded one is stale, the new one new, with its event."""
    assert await bank.outbox() == ["1 ada"]
    assert await bank.row(wallet.__dict__.get("id") or (await only_wallet(bank))) == (0, 1)
    with pytest.raises(StaleAggregate):
        wallet.note("never")
    async with bank.session() as session:
        session.add(born)
        await session.commit()
    assert await bank.outbox() == ["1 ada", "1 born"]


async def only_wallet(bank: Bank) -> UUID:
    async with bank.session() as session:
        return (await session.scalars(select(Wallet))).one().id


# --- cancellation -------------------------------------------------------------------------------------


async def test_a_use_case_that_is_cancelled_inside_its_flush_leaves_nothing(bank: Bank) -> None:
    """C3: while the database lets it wait."""
    wallet_id, touched = await bank.open_wallet(), list[Wallet]()
    async with locked(bank, wallet_id):
        task = asyncio.create_task(pay_and_open(bank, wallet_id, touched))
        await waiting_backend(bank)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await assert_given_up(bank, *touched)


@pytest.mark.parametrize("steps", range(0, 24, 2))
async def test_a_use_case_that_is_cancelled_anywhere_stores_all_or_nothing(bank: Bank, steps: int) -> None:
    """C: at one point of its way after the other, the COMMIT included."""
    wallet_id, touched = await bank.open_wallet(), list[Wallet]()
    task = asyncio.create_task(pay_and_open(bank, wallet_id, touched))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    # The shielded end of the unit of work may still be under way; it holds a connection until it is over.
    await asyncio.wait({each for each in asyncio.all_tasks() if "_give_up" in repr(each)} or [task])
    stored, row = await bank.outbox(), await bank.row(wallet_id)
    assert (stored, row) in [(["1 ada"], (0, 1)), (["1 ada", "2 1", "1 born", "- paid"], (1, 2))]
    if touched and row == (0, 1):
        await assert_given_up(bank, *touched)


async def test_a_session_whose_flush_was_cancelled_serves_on_after_a_rollback(bank: Bank) -> None:
    """C3: and commits nothing before."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.pay(1)
        async with locked(bank, wallet_id):
            task = asyncio.create_task(session.flush())
            await waiting_backend(bank)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        with pytest.raises(PendingRollbackError):
            await session.commit()
        await session.rollback()
        await session.refresh(wallet)
        wallet.pay(2)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 2"]


# --- a lost connection --------------------------------------------------------------------------------

LOST = r"a connection to PostgreSQL at .* was lost .*: if that goes on, look at the server's log"


async def test_a_use_case_that_loses_its_connection_inside_its_flush_leaves_nothing(bank: Bank) -> None:
    """C3: and is told in a sentence."""
    wallet_id, touched = await bank.open_wallet(), list[Wallet]()
    async with locked(bank, wallet_id):
        task = asyncio.create_task(pay_and_open(bank, wallet_id, touched))
        await terminate(bank, await waiting_backend(bank))
        with pytest.raises(DatabaseUnreachable, match=LOST):
            await task
    await assert_given_up(bank, *touched)


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("ending", ["left", "failed", "rolled back", "committed"])
async def test_a_unit_of_work_whose_connection_was_lost_gives_all_up_with_the_right_words(
    bank: Bank, ending: str, flushed: bool
) -> None:
    """C3: an error of the use case's own comes out, whatever the rollback meets."""
    wallet_id, born = await bank.open_wallet(), Wallet.open("born")
    expected: Any = ZeroDivisionError if ending == "failed" else DatabaseUnreachable
    with pytest.raises(expected, match=None if ending == "failed" else LOST):
        async with SqlAlchemyUnitOfWork(bank.sessions) as uow:
            wallet = await loaded(uow.session, wallet_id)
            with uow.session.no_autoflush:
                pid = await uow.session.scalar(text("SELECT pg_backend_pid()"))
            wallet.pay(1)
            uow.repository(Wallet).add(born)
            if flushed:
                await uow.session.flush()
            await terminate(bank, pid)
            if ending == "failed":
                _ = 1 / 0
            elif ending == "rolled back":
                await uow.rollback()
            elif ending == "committed":
                await uow.commit()
    await assert_given_up(bank, wallet, born)
