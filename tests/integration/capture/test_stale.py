"""C3a: whoever touches what was rolled back, expired or deleted is told so, and nothing else comes to harm."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy.orm.exc import DetachedInstanceError

from outbox_kernel.errors import StaleAggregate
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from tests.bank import Bank, loaded
from tests.domain import Announced, Wallet
from tests.market import Order, placed

TOUCHES: list[Callable[[Wallet], object]] = [
    lambda wallet: wallet.balance,
    lambda wallet: wallet.entries,
    lambda wallet: wallet.pay(1),
    lambda wallet: wallet.enter("x"),
]


@pytest.mark.parametrize("touch", TOUCHES)
async def test_touching_a_stale_aggregate_takes_nothing_from_what_waits_beside_it(
    bank: Bank, touch: Callable[[Wallet], object]
) -> None:
    """C2, C3a: after a savepoint that failed, the use case tells of it and commits."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        savepoint = await session.begin_nested()
        wallet.pay(5)
        await savepoint.rollback()
        bank.emit(session, "failed")
        with pytest.raises(StaleAggregate, match="load it again"):
            touch(wallet)
        await session.commit()
    assert await bank.outbox() == ["1 ada", "- failed"]


@pytest.mark.parametrize("touch", TOUCHES)
async def test_touching_a_stale_aggregate_leaves_the_unit_of_work_as_it_was(
    bank: Bank, touch: Callable[[Wallet], object]
) -> None:
    """C2, C3a: what was emitted and added since the rollback commits."""
    wallet_id = await bank.open_wallet()
    async with SqlAlchemyUnitOfWork(bank.sessions) as uow:
        wallet = await loaded(uow.session, wallet_id)
        wallet.pay(1)
        await uow.rollback()
        uow.emit(Announced("tried"))
        uow.repository(Wallet).add(Wallet.open("new"))
        with pytest.raises(StaleAggregate, match="load it again"):
            touch(wallet)
        await uow.commit()
    assert await bank.outbox() == ["1 ada", "- tried", "1 new"]


async def test_synchronous_code_of_a_session_still_loads_what_is_stale(bank: Bank) -> None:
    """C3a: inside `run_sync` a load is no harm, so it is made."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.pay(1)
        await session.rollback()
        bank.emit(session, "kept")
        assert await session.run_sync(lambda _: wallet.balance) == 0
        await session.commit()
    assert await bank.outbox() == ["1 ada", "- kept"]


async def test_what_was_never_loaded_of_an_aggregate_at_hand_is_told_in_sqlalchemys_words(shop: Bank) -> None:
    """C3a: its own row is there, so that it is not stale; to load it again would be no remedy."""
    key = await placed(shop)
    async with shop.session() as session:
        order = await session.get_one(Order, key)
    assert order.status == "placed"
    with pytest.raises(DetachedInstanceError, match="lazy load operation of attribute 'lines'"):
        _ = order.lines
