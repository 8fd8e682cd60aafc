"""C: sessions in other hands: synchronous code, a second use, binds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session

from outbox_kernel.errors import KernelError
from outbox_kernel.infrastructure.outbox import bus_of, install_capture
from tests.bank import Bank, loaded
from tests.domain import Announced, Wallet


async def test_what_run_sync_does_is_captured(bank: Bank) -> None:
    """C2: synchronous code on the session's own session, flushing and expiring as it likes."""
    wallet_id = await bank.open_wallet()

    def work(session: Session) -> None:
        wallet = session.get_one(Wallet, wallet_id)
        wallet.pay(1)
        session.flush()
        wallet.pay(2)
        session.expire(wallet)
        wallet.pay(4)

    async with bank.session() as session:
        await session.run_sync(work)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 1", "3 4"]


@pytest.mark.parametrize("leave", [AsyncSession.close, AsyncSession.reset])
async def test_a_session_used_again_after_it_was_closed_begins_anew(
    bank: Bank, leave: Callable[[AsyncSession], Any]
) -> None:
    """C3: with objects of its own; what it had emitted and not flushed is gone."""
    wallet_id = await bank.open_wallet()
    session = bank.sessions()
    (await loaded(session, wallet_id)).note("given up")
    bank.emit(session, "given up")
    await leave(session)
    (await loaded(session, wallet_id)).note("kept")
    await session.commit()
    await session.close()
    assert await bank.outbox() == ["1 ada", "2 kept"]


async def test_an_emitted_event_without_a_database_to_go_to_is_refused_with_the_remedy(bank: Bank) -> None:
    """C6: a session may have binds for its classes, and the outbox is of none."""
    binds: Any = {Wallet: bank.engine}
    maker = install_capture(async_sessionmaker(binds=binds, expire_on_commit=False))
    async with maker() as session:
        bus_of(session).emit(Announced("nowhere"))
        with pytest.raises(
            KernelError, match=r"`binds` and no default.*make the session with `bind=` as well"
        ):
            await session.commit()
        await session.rollback()
        session.add(Wallet.open("there"))
        bus_of(session).emit(Announced("beside it"))
        await session.commit()
    assert await bank.outbox() == ["1 there", "- beside it"]
