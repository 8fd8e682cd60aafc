"""C5: bulk and Core statements pass the unit of work by, and the bus is the way to tell of them."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

import pytest
from sqlalchemy import delete, insert, update
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import Session

from outbox_kernel.errors import ConcurrencyError, UncommittedEvents
from outbox_kernel.infrastructure.outbox import bus_of
from tests.bank import Bank, loaded
from tests.domain import Announced, Wallet, wallets


async def test_bulk_and_core_statements_write_no_events(bank: Bank) -> None:
    """C5: neither ORM bulk statements nor Core ones, whatever they do to rows of aggregates."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        await session.execute(insert(Wallet), [{"id": uuid4(), "owner": "bulk", "balance": 0}])
        await session.execute(update(Wallet).where(wallets.c.id == wallet_id).values(balance=7))
        await session.execute(update(wallets).values(owner="core"))
        await session.execute(delete(Wallet).where(wallets.c.balance == 0))
        await session.commit()
    assert await bank.row(wallet_id) == (7, 1)
    assert await bank.outbox() == ["1 ada"]


@pytest.mark.servers
async def test_emit_tells_of_a_bulk_change_in_its_transaction(bank: Bank) -> None:
    """C5: with the aggregate's type and id it joins that stream, without a number."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        await session.execute(update(Wallet).values(balance=7))
        bus_of(session).emit(Announced("raised"), aggregate_type=Wallet, aggregate_id=wallet_id)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "- raised"]
    async with bank.session() as session:
        await session.execute(update(Wallet).values(balance=8))
        bus_of(session).emit(Announced("given up"), aggregate_type="bank.wallet", aggregate_id=wallet_id)
        await session.rollback()
    assert await bank.stream(wallet_id) == ["1 ada", "- raised"]
    assert await bank.row(wallet_id) == (7, 1)


async def test_a_bulk_change_that_moves_the_revision_is_a_conflict_for_who_had_loaded_before(
    bank: Bank,
) -> None:
    """C5: a bulk statement that keeps to the lock is as safe as any other writer."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session, bank.session() as bulk:
        wallet = await loaded(session, wallet_id)
        await bulk.execute(update(wallets).values(balance=7, revision=wallets.c.revision + 1))
        await bulk.commit()
        wallet.pay(1)
        with pytest.raises(ConcurrencyError):
            await session.commit()
    assert await bank.row(wallet_id) == (7, 1)
    assert await bank.outbox() == ["1 ada"]


def bulk_save(wallet: Wallet, session: Session) -> None:
    session.bulk_save_objects([wallet])


async def test_bulk_saving_an_aggregate_with_events_is_refused(bank: Bank) -> None:
    """C5: its row would have a version of which no event tells."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.pay(1)
        for told in (wallet, Wallet.open("new")):
            save = partial(bulk_save, told)
            with pytest.raises(
                UncommittedEvents, match=r"bulk_save_objects would store it without.*use add_all"
            ):
                await session.run_sync(save)
        await session.run_sync(partial(bulk_save, Wallet(uuid4(), "quiet")))
        await session.run_sync(
            Session.bulk_insert_mappings, Wallet, [{"id": uuid4(), "owner": "x", "balance": 0}]
        )
        await session.commit()
    assert await bank.outbox() == ["1 ada", "2 1"]


async def test_bulk_saving_on_a_session_without_capture_is_not_watched(bank: Bank) -> None:
    """C5: as the docs say, since SQLAlchemy asks no listener there; should that change, so may this."""
    wallet = Wallet.open("unheard")
    async with async_sessionmaker(bank.engine)() as plain:
        await plain.run_sync(partial(bulk_save, wallet))
        await plain.commit()
    assert await bank.row(wallet.id) == (0, 1)
    assert await bank.outbox() == []
