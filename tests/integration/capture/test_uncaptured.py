"""C8: no session stores an aggregate without the events that it has recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from sqlalchemy.event import listen
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from outbox_kernel import MappedAggregate, applies
from outbox_kernel.errors import UncommittedEvents, VersionMoved
from outbox_kernel.infrastructure.outbox import OutboxEventDispatcher
from outbox_kernel.kernel.catalogue import isolated_definitions
from tests.bank import Bank, loaded
from tests.domain import Wallet
from tests.market import Order, Told, placed

REFUSED = "this session would store it without them: call install_capture on the session's maker or class"
ABSENT = "is at version {} and its row at {}, and the events between are not in this session: load it and change it"


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


async def test_a_merged_copy_is_refused_where_its_events_stayed_behind(
    bank: Bank, plain: AsyncSession
) -> None:
    """C8: the copy has the version and not the events, and the next captured session counted on above the gap."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
    wallet.pay(1)
    for left, versions in ((wallet, (2, 1)), (Wallet.open("eve"), (1, 0))):
        await plain.merge(left)
        with pytest.raises(VersionMoved, match=ABSENT.format(*versions)):
            await plain.commit()
        await plain.rollback()
    async with bank.session() as session:
        (await loaded(session, wallet_id)).pay(2)
        await session.commit()
    assert await bank.outbox() == ["1 ada", "2 2"]


async def test_a_merged_copy_of_what_maps_itself_is_refused_alike(shop: Bank) -> None:
    """C8, C10: one whose row has a key, and one that has yet to get it."""
    key = await placed(shop)
    async with shop.session() as session:
        order = await session.get_one(Order, key)
    order.record(Told("again"))
    new = Order()
    new.place()
    async with async_sessionmaker(shop.engine)() as plain:
        for left, versions in ((order, (2, 1)), (new, (1, 0))):
            await plain.merge(left)
            with pytest.raises(VersionMoved, match=ABSENT.format(*versions)):
                await plain.commit()
            await plain.rollback()


async def test_a_merged_copy_is_stored_where_its_events_are_dispatched(
    bank: Bank, plain: AsyncSession
) -> None:
    """C8, K6: of a stored one and of a new one; the events of another, or of another number, do not stand for them."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        stored = await loaded(session, wallet_id)
    stored.pay(1)
    new = Wallet.open("eve")
    told, begun = stored.collect_events(), new.collect_events()
    dispatcher = OutboxEventDispatcher(plain)
    await dispatcher.dispatch(begun)
    await plain.merge(stored)
    with pytest.raises(VersionMoved, match=ABSENT.format(2, 1)):
        await plain.flush()
    await plain.rollback()
    await dispatcher.dispatch([*told, *begun])
    await plain.merge(stored)
    await plain.merge(new)
    await plain.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 1"]
    assert await bank.stream(new.id) == ["1 eve"]


async def test_an_aggregate_that_was_rebuilt_by_replay_is_refused(plain: AsyncSession) -> None:
    """C8, K3: its history is told elsewhere, if at all, and its row would say that it is told here."""
    with isolated_definitions():

        class Own(DeclarativeBase):
            pass

        class Sourced(MappedAggregate, Own):
            __tablename__ = "sourced"
            id: Mapped[str] = mapped_column(primary_key=True)

            @applies(Told)
            def apply(self, told: Told) -> None:
                self.id = told.what

        made = Sourced()
        made.record(Told("x"))
        plain.add(Sourced.replay(made.recorded_events))
        with pytest.raises(VersionMoved, match=ABSENT.format(1, 0)):
            await plain.commit()


@pytest.mark.parametrize("version", [0, 3])
async def test_a_version_that_was_set_by_hand_is_refused(
    bank: Bank, plain: AsyncSession, version: int
) -> None:
    """C8: forward, where no event follows it, and back, where the next one would have a number that is taken."""
    wallet = await loaded(plain, await bank.open_wallet())
    wallet.version = version
    with pytest.raises(VersionMoved, match=ABSENT.format(version, 1)):
        await plain.commit()
