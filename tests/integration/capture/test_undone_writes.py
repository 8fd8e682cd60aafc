"""C3, C4: what was read of a write that is undone goes with it, whichever object it was read into."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from sqlalchemy import inspect, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from outbox_kernel.errors import StaleAggregate, UncommittedEvents
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from tests.bank import Bank, loaded
from tests.domain import Entry, Wallet, wallets
from tests.market import Line, Order, placed


async def write_and_drop(session: AsyncSession, wallet_id: UUID, *, told: bool = True) -> None:
    """Flush a change, and let go of the last reference to what was changed."""
    wallet = await loaded(session, wallet_id)
    wallet.owner = "never"
    if told:
        wallet.enter("never")
    await session.flush()
    alive = weakref.ref(wallet)
    del wallet
    gc.collect()
    assert alive() is None


async def another_writes(bank: Bank, wallet_id: UUID) -> None:
    """Another writer is first, with no event: the row's revision is the one that was undone."""
    async with bank.session() as session:
        (await loaded(session, wallet_id)).balance = 7
        await session.commit()


async def assert_only_what_was(bank: Bank, wallet_id: UUID) -> None:
    """The other writer's change and the first event are all there is."""
    assert await bank.row(wallet_id) == (7, 1)
    assert await bank.outbox() == ["1 ada"]
    assert await bank.entries(wallet_id) == []


def assert_stale(wallet: Wallet) -> None:
    for use in (lambda: wallet.note("x"), lambda: wallet.balance):
        with pytest.raises(StaleAggregate):
            use()


@pytest.mark.servers
@pytest.mark.parametrize("told", [True, False])
async def test_what_was_loaded_again_inside_a_savepoint_goes_with_it(bank: Bank, told: bool) -> None:
    """C3a: SQLAlchemy takes away what was changed there, and this object was not."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        savepoint = await session.begin_nested()
        await write_and_drop(session, wallet_id, told=told)
        wallet = await loaded(session, wallet_id)
        await savepoint.rollback()
        await session.commit()
        await another_writes(bank, wallet_id)
        assert_stale(wallet)
        wallet = await loaded(session, wallet_id)
        assert wallet.owner == "ada"
        wallet.pay(1)
        await session.commit()
    assert await bank.row(wallet_id) == (8, 2)
    assert await bank.outbox() == ["1 ada", "2 1"]


async def test_what_a_unit_of_work_loaded_again_inside_a_savepoint_goes_with_it(bank: Bank) -> None:
    """C3a: the same through the unit of work, which holds what has recorded in it, and not what was only changed."""
    wallet_id = await bank.open_wallet()
    async with SqlAlchemyUnitOfWork(bank.sessions) as uow:
        savepoint = await uow.session.begin_nested()
        await write_and_drop(uow.session, wallet_id, told=False)
        wallet = await uow.repository(Wallet).get(wallet_id)
        assert wallet is not None
        await savepoint.rollback()
        await uow.commit()
    await another_writes(bank, wallet_id)
    assert_stale(wallet)
    await assert_only_what_was(bank, wallet_id)


async def test_what_was_loaded_in_a_savepoint_inside_goes_with_the_one_that_wrote_it(bank: Bank) -> None:
    """C3a: the inner one wrote nothing, so its rollback leaves it; the outer one's does not."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        outer = await session.begin_nested()
        await write_and_drop(session, wallet_id)
        inner = await session.begin_nested()
        wallet = await loaded(session, wallet_id)
        await inner.rollback()
        assert wallet.owner == "never"
        await outer.rollback()
        assert_stale(wallet)


async def test_what_was_written_in_a_released_savepoint_goes_with_the_outer_one(bank: Bank) -> None:
    """C3a: a release hands over what is to be undone."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        outer = await session.begin_nested()
        async with session.begin_nested():
            await write_and_drop(session, wallet_id)
        wallet = await loaded(session, wallet_id)
        await outer.rollback()
        assert_stale(wallet)


async def test_a_child_that_was_loaded_again_inside_a_savepoint_goes_with_it(bank: Bank) -> None:
    """C3a: it is a part of its aggregate, and whoever holds it would keep what was undone."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        (await loaded(session, wallet_id)).enter("bread")
        await session.commit()
        gc.collect()
        savepoint = await session.begin_nested()
        wallet = await loaded(session, wallet_id)
        wallet.entries[0].text = "never"
        wallet.note("changed")
        await session.flush()
        del wallet
        gc.collect()
        entry: Entry = (await loaded(session, wallet_id)).entries[0]
        assert entry.text == "never"
        await savepoint.rollback()
        wallet = await loaded(session, wallet_id)
        assert wallet.entries == [entry]
        assert entry.text == "bread"


async def by_core(session: AsyncSession, _: UUID) -> None:
    await session.execute(update(wallets).values(owner="never", revision=wallets.c.revision + 1))


async def in_bulk(session: AsyncSession, wallet_id: UUID) -> None:
    def update_one(session: Session) -> None:
        session.bulk_update_mappings(
            inspect(Wallet), [{"id": wallet_id, "owner": "never", "_revision": 1, "version": 1}]
        )

    await session.run_sync(update_one)


NEVER = "UPDATE bank_wallets SET owner = 'never', revision = revision + 1"


async def by_text(session: AsyncSession, _: UUID) -> None:
    await session.execute(text(NEVER))


async def by_text_behind_a_query(session: AsyncSession, _: UUID) -> None:
    await session.execute(text(f"WITH done AS ({NEVER} RETURNING id) SELECT id FROM done"))


async def on_the_connection(session: AsyncSession, _: UUID) -> None:
    await (await session.connection()).execute(text(NEVER))


@pytest.mark.parametrize("write", [by_core, in_bulk, by_text, by_text_behind_a_query, on_the_connection])
async def test_what_was_written_past_the_unit_of_work_in_a_savepoint_is_in_no_object_after_its_rollback(
    bank: Bank, write: Callable[[AsyncSession, UUID], Awaitable[None]]
) -> None:
    """C4: its revision never was, and another writer may make that very one."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        savepoint = await session.begin_nested()
        await write(session, wallet_id)
        wallet = await loaded(session, wallet_id)
        assert wallet.owner == "never"
        await savepoint.rollback()
        assert_stale(wallet)


async def test_what_a_connection_wrote_that_was_lent_before_a_savepoint_goes_with_it(bank: Bank) -> None:
    """C4: nobody hears of what is written through it, so each later savepoint may have written."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        connection = await session.connection()
        savepoint = await session.begin_nested()
        await connection.execute(text(NEVER))
        wallet = await loaded(session, wallet_id)
        await savepoint.rollback()
        assert_stale(wallet)


@pytest.mark.parametrize(
    "query", ["SELECT 1", "SET LOCAL statement_timeout = 0", "lock bank_wallets in share mode;"]
)
async def test_a_text_that_writes_no_row_leaves_what_is_loaded_after_it_readable(
    bank: Bank, query: str
) -> None:
    """C3: nothing is undone with it."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        _ = await session.connection(execution_options={"isolation_level": "READ COMMITTED"})
        await session.execute(text(query))
        wallet = await loaded(session, wallet_id)
    assert wallet.owner == "ada"


@pytest.mark.parametrize("told", [True, False])
async def test_what_was_loaded_again_and_deleted_inside_a_savepoint_goes_with_it(
    bank: Bank, told: bool
) -> None:
    """C3a: the rollback takes its deletion back, and it shows what never was."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        savepoint = await session.begin_nested()
        await write_and_drop(session, wallet_id, told=told)
        wallet = await loaded(session, wallet_id)
        await session.delete(wallet)
        await session.flush()
        await savepoint.rollback()
        assert_stale(wallet)
        assert (await loaded(session, wallet_id)).owner == "ada"


async def test_a_child_that_never_was_is_in_no_collection_after_a_rollback(shop: Bank) -> None:
    """C3: the parent was loaded before the savepoint, and its children inside."""
    order_id = await placed(shop)
    async with shop.session() as session:
        order = await session.get_one(Order, order_id)
        savepoint = await session.begin_nested()
        session.add(Line(order_id=order_id, what="never"))
        await session.flush()
        assert [line.what for line in await order.awaitable_attrs.lines] == ["never"]
        await savepoint.rollback()
        assert list(await order.awaitable_attrs.lines) == []


async def test_a_collection_that_was_loaded_in_a_savepoint_without_writes_stays_after_its_rollback(
    shop: Bank,
) -> None:
    """C3: it can show only what the outer transaction has written, and that is still there."""
    order_id = await placed(shop)
    async with shop.session() as session:
        order = await session.get_one(Order, order_id)
        session.add(Line(order_id=order_id, what="tea"))
        await session.flush()
        savepoint = await session.begin_nested()
        assert len(await order.awaitable_attrs.lines) == 1
        await savepoint.rollback()
        assert [line.what for line in order.lines] == ["tea"]


async def test_what_a_query_filled_in_goes_with_the_savepoint_that_wrote_it(bank: Bank) -> None:
    """C4: it was expired and at hand, so the query loaded no new object."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        savepoint = await session.begin_nested()
        await session.execute(update(wallets).values(owner="never", revision=wallets.c.revision + 1))
        session.expire(wallet)
        await session.execute(select(Wallet))
        assert wallet.owner == "never"
        await savepoint.rollback()
        assert_stale(wallet)


@pytest.mark.parametrize("written_before", [False, True])
async def test_what_a_savepoint_read_and_did_not_write_stays_readable_after_its_rollback(
    bank: Bank, written_before: bool
) -> None:
    """C3: an object that was loaded before the first write there cannot show what is undone."""
    wallet_id, other_id = await bank.open_wallet(), await bank.open_wallet("bob")
    async with bank.session() as session:
        if written_before:
            (await loaded(session, other_id)).pay(1)
            await session.flush()
        savepoint = await session.begin_nested()
        wallet, other = await loaded(session, wallet_id), await loaded(session, other_id)
        other.pay(2)
        await session.flush()
        await savepoint.rollback()
        assert wallet.owner == "ada"
        wallet.pay(4)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 4"]


Leave = Callable[[AsyncSession, Wallet], Awaitable[None]]


async def close(session: AsyncSession, _: Wallet) -> None:
    await session.close()


async def reset(session: AsyncSession, _: Wallet) -> None:
    await session.reset()


async def invalidate(session: AsyncSession, _: Wallet) -> None:
    await session.invalidate()


async def expunge(session: AsyncSession, wallet: Wallet) -> None:
    session.expunge(wallet)


async def expunge_all(session: AsyncSession, _: Wallet) -> None:
    session.expunge_all()


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("leave", [close, reset, invalidate])
async def test_what_was_loaded_again_is_stale_when_its_session_ends_without_a_commit(
    bank: Bank, leave: Leave, told: bool
) -> None:
    """C3a, C4: a later session would store it, on the revision that another writer has made since."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        await write_and_drop(session, wallet_id, told=told)
        wallet = await loaded(session, wallet_id)
        await leave(session, wallet)
    await another_writes(bank, wallet_id)
    assert_stale(wallet)
    await assert_only_what_was(bank, wallet_id)


@pytest.mark.parametrize("leave", [close, reset, invalidate])
async def test_a_flushed_change_without_an_event_is_stale_when_its_session_ends_without_a_commit(
    bank: Bank, leave: Leave
) -> None:
    """C4: its revision is that of a row that never was, and another's first write makes that very one."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.owner = "never"
        await session.flush()
        await leave(session, wallet)
    await another_writes(bank, wallet_id)
    assert_stale(wallet)
    await assert_only_what_was(bank, wallet_id)


async def test_what_a_core_statement_wrote_is_in_no_object_after_a_close_without_a_commit(bank: Bank) -> None:
    """C4: the same revision that never was, by another way."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        await session.execute(update(wallets).values(owner="never", revision=wallets.c.revision + 1))
        wallet = await loaded(session, wallet_id)
    assert_stale(wallet)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("leave", [expunge, expunge_all])
async def test_to_expunge_what_was_loaded_again_since_the_write_is_refused(
    bank: Bank, leave: Leave, told: bool
) -> None:
    """C3: a rollback would not reach it."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        await write_and_drop(session, wallet_id, told=told)
        wallet = await loaded(session, wallet_id)
        with pytest.raises(
            UncommittedEvents, match=r"loaded after .* had written.*; commit first, or roll back"
        ):
            await leave(session, wallet)
        await session.rollback()
        assert_stale(wallet)
        await leave(session, wallet)
        wallet = await loaded(session, wallet_id)
        await leave(session, wallet)
    assert wallet.owner == "ada"


async def test_what_was_loaded_before_a_write_can_be_expunged(bank: Bank) -> None:
    """C3: it shows nothing that is not committed."""
    wallet_id, other_id = await bank.open_wallet(), await bank.open_wallet("bob")
    async with bank.session() as session:
        wallet, other = await loaded(session, wallet_id), await loaded(session, other_id)
        other.pay(1)
        await session.flush()
        session.expunge(wallet)
        await session.commit()
        session.expunge(await loaded(session, other_id))
    assert wallet.owner == "ada"


@pytest.mark.parametrize("flushed", [True, False])
async def test_a_new_aggregate_is_new_again_though_a_savepoint_was_open_that_changed_it(
    bank: Bank, flushed: bool
) -> None:
    """C3b: the savepoint goes with its transaction, not before it."""
    async with bank.session() as session:
        wallet = Wallet.open()
        session.add(wallet)
        _ = await session.begin_nested()
        wallet.pay(1)
        if flushed:
            _ = await session.begin_nested()
            wallet.pay(2)
            await session.flush()
        await session.rollback()
        session.add(wallet)
        await session.commit()
    assert await bank.stream(wallet.id) == (["1 ada", "2 1", "3 2"] if flushed else ["1 ada", "2 1"])
    assert await bank.row(wallet.id) == ((3, 3) if flushed else (1, 2))
