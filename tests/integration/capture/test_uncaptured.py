"""C8: no session stores an aggregate without the events that it has recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from sqlalchemy.event import listen
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from outbox_kernel.infrastructure.outbox import OutboxEventDispatcher
from outbox_kernel.kernel import UncommittedEvents
from tests.bank import Bank, loaded
from tests.domain import Wallet

REFUSED = "this session would store it without them: call install_capture on the session's maker or class"


@pytest.fixture
async def plain(bank: Bank) -> AsyncIterator[AsyncSession]:
    """A session without capture."""
    async with async_sessionmaker(bank.engine, expire_on_commit=False)() as session:
        yield session


@pytest.mark.parametrize("change", ["new", "changed", "deleted"])
async def test_a_session_without_capture_refuses_an_aggregate_that_has_recorded(
    bank: Bank, plain: AsyncSession, change: str
) -> None:
    """C8: it stored the state without its events, and the next captured session went on counting above the gap."""
    wallet_id = await bank.open_wallet()
    if change == "new":
        plain.add(Wallet.open("eve"))
    else:
        wallet = await loaded(plain, wallet_id)
        wallet.pay(1)
        if change == "deleted":
            await plain.delete(wallet)
    with pytest.raises(UncommittedEvents, match=REFUSED):
        await plain.commit()
    await plain.rollback()
    async with bank.session() as session:
        (await loaded(session, wallet_id)).pay(2)
        await session.commit()
    assert await bank.outbox() == ["1 ada", "2 2"]


async def test_what_another_listener_records_is_refused_as_well(bank: Bank, plain: AsyncSession) -> None:
    """C8: after ours was asked."""
    wallet = Wallet(uuid4(), "quiet")
    plain.add(wallet)
    listen(plain.sync_session, "before_flush", lambda *_: wallet.note("late"))
    with pytest.raises(UncommittedEvents, match=REFUSED):
        await plain.commit()
    assert await bank.row(wallet.id) is None


async def test_a_session_without_capture_stores_what_has_recorded_nothing(
    bank: Bank, plain: AsyncSession
) -> None:
    """C8: a change without an event, and an aggregate whose events are committed."""
    quiet, told = Wallet(uuid4(), "quiet"), Wallet.open()
    async with bank.session() as session:
        session.add(told)
        await session.commit()
    plain.add_all([quiet, told])
    told.balance = 7
    await plain.commit()
    quiet.balance = 8
    await plain.commit()
    await plain.delete(quiet)
    await plain.commit()
    assert await bank.row(told.id) == (7, 1)
    assert await bank.row(quiet.id) is None


async def test_a_session_without_capture_stores_an_aggregate_whose_events_go_into_it_by_hand(
    bank: Bank, plain: AsyncSession
) -> None:
    """C8, K6: before the flush of its row, or in one that was earlier; and again in the next transaction."""
    wallet = Wallet.open()
    dispatcher = OutboxEventDispatcher(plain)
    await dispatcher.dispatch(wallet.collect_events())
    await plain.flush()
    plain.add(wallet)
    wallet.pay(1)
    await dispatcher.dispatch(wallet.collect_events())
    await plain.commit()
    wallet.pay(2)
    await dispatcher.dispatch(wallet.collect_events())
    await plain.commit()
    assert await bank.stream(wallet.id) == ["1 ada", "2 1", "3 2"]


async def test_events_that_were_rolled_back_or_dispatched_elsewhere_do_not_count(
    bank: Bank, plain: AsyncSession
) -> None:
    """C8: the row of an event has to go with that of its aggregate."""
    wallet = Wallet.open()
    events = wallet.collect_events()
    await OutboxEventDispatcher(plain).dispatch(events)
    await plain.flush()
    await plain.rollback()
    plain.add(wallet)
    with pytest.raises(UncommittedEvents, match=REFUSED):
        await plain.commit()
    await plain.rollback()
    async with async_sessionmaker(bank.engine)() as other:
        await OutboxEventDispatcher(other).dispatch(events)
        plain.add(wallet)
        with pytest.raises(UncommittedEvents, match=REFUSED):
            await plain.commit()
    assert await bank.outbox() == []
