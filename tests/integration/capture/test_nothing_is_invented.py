"""C3: what was rolled back, expired or refreshed away is in no outbox, and no later event takes its number."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, defer, load_only

from outbox_kernel.errors import (
    ConcurrencyError,
    IdentityMoved,
    StaleAggregate,
    UncommittedEvents,
    VersionMoved,
)
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from outbox_kernel.infrastructure.outbox import bus_of
from tests.bank import Bank, loaded
from tests.domain import Entry, Wallet, wallets

Uses = list[Callable[[Wallet], object]]

USES_OF_ITS_ROW: Uses = [
    lambda wallet: wallet.pay(1),
    lambda wallet: wallet.note("x"),
    lambda wallet: wallet.balance,
    lambda wallet: wallet.version,
]
USES: Uses = [
    *USES_OF_ITS_ROW,
    lambda wallet: wallet.enter("x"),
    lambda wallet: wallet.entries,
]


def assert_stale(wallet: Wallet, uses: Uses = USES) -> None:
    """Any use says that the aggregate is to be loaded again, and none changes it."""
    for use in uses:
        with pytest.raises(StaleAggregate, match=r"Wallet is stale.*load it again"):
            use(wallet)
    assert wallet.recorded_events == ()


@pytest.mark.servers
async def test_after_a_rollback_a_loaded_aggregate_is_stale_until_it_is_loaded_again(bank: Bank) -> None:
    """C3a: an aggregate whose row still exists drops the events recorded since."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.pay(1)
        await session.flush()
        wallet.pay(2)
        await session.rollback()
        assert_stale(wallet)
        assert await loaded(session, wallet_id) is wallet
        wallet.pay(4)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 4"]
    assert await bank.row(wallet_id) == (4, 2)


async def test_a_rolled_back_transaction_leaves_nothing_at_all(bank: Bank) -> None:
    """C3: neither of aggregates nor of the bus, flushed or not."""
    async with bank.session() as session:
        session.add(Wallet.open())
        bank.emit(session, "flushed")
        await session.flush()
        session.add(Wallet.open())
        bank.emit(session, "waiting")
        await session.rollback()
        assert not bus_of(session).has_events
        await session.commit()
    assert await bank.outbox() == []


async def test_closing_a_session_gives_up_its_events(bank: Bank) -> None:
    """C3: a close without a commit is a rollback, and no reason to complain of uncommitted events."""
    wallet_id = await bank.open_wallet()
    for leave in (AsyncSession.close, AsyncSession.reset, AsyncSession.invalidate):
        session = bank.sessions()
        (await loaded(session, wallet_id)).note("given up")
        session.add(Wallet.open())
        bank.emit(session, "given up")
        await leave(session)
    assert await bank.outbox() == ["1 ada"]


async def test_what_a_closed_session_had_flushed_is_as_after_a_rollback(bank: Bank) -> None:
    """C3: the aggregates outlive the session: one that was born is new again, a loaded one is stale."""
    wallet_id, born = await bank.open_wallet(), Wallet.open("born")
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        born.enter("child")
        wallet.pay(1)
        session.add(born)
        await session.flush()
    assert_stale(wallet, USES_OF_ITS_ROW)
    async with bank.session() as session:
        session.add(born)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada"]
    assert await bank.stream(born.id) == ["1 born", "2 child"]
    assert await bank.entries(born.id) == ["child"]


async def test_what_a_closed_session_had_only_read_stays_readable(bank: Bank) -> None:
    """C3: nothing was written, so nothing is stale."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
    assert (wallet.owner, wallet.balance) == ("ada", 0)


async def test_an_aggregate_survives_the_loss_of_its_sessions_connection(bank: Bank) -> None:
    """C3b: the server has rolled back by itself."""
    wallet, session = Wallet.open(), bank.sessions()
    session.add(wallet)
    await session.flush()
    pid = await session.scalar(text("SELECT pg_backend_pid()"))
    async with bank.engine.connect() as other:
        await other.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": pid})
    with pytest.raises(DBAPIError):
        await session.close()
    async with bank.session() as session:
        session.add(wallet)
        await session.commit()
    assert await bank.stream(wallet.id) == ["1 ada"]


@pytest.mark.servers
async def test_after_a_rollback_to_a_savepoint_what_came_before_it_stays(bank: Bank) -> None:
    """C3a: the row in this transaction counts, not the committed one."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.pay(1)
        savepoint = await session.begin_nested()
        wallet.pay(2)
        await session.flush()
        wallet.pay(4)
        await savepoint.rollback()
        assert_stale(wallet)
        await session.refresh(wallet)
        assert (wallet.version, wallet.balance) == (2, 1)
        wallet.pay(8)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 1", "3 8"]
    assert await bank.row(wallet_id) == (9, 3)


async def test_an_aggregate_untouched_since_the_savepoint_keeps_its_state(bank: Bank) -> None:
    """C3: nothing is dropped that the rollback did not undo."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.pay(1)
        savepoint = await session.begin_nested()
        await savepoint.rollback()
        wallet.pay(2)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 1", "3 2"]


@pytest.mark.parametrize("flushed", [True, False])
async def test_bus_events_since_a_savepoint_go_with_it(bank: Bank, flushed: bool) -> None:
    """C3c: the bus keeps a mark per savepoint."""
    async with bank.session() as session:
        bank.emit(session, "before")
        outer = await session.begin_nested()
        bank.emit(session, "kept")
        inner = await session.begin_nested()
        bank.emit(session, "dropped")
        if flushed:
            await session.flush()
        await inner.rollback()
        await outer.commit()
        bank.emit(session, "after")
        await session.commit()
    assert await bank.outbox() == ["- before", "- kept", "- after"]


@pytest.mark.servers
async def test_a_released_savepoint_publishes_nothing_before_the_commit(bank: Bank) -> None:
    """C3: a second connection sees nothing, and a rollback of the whole takes everything back."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        async with session.begin_nested():
            wallet.pay(1)
            bank.emit(session, "released")
        assert await bank.outbox() == ["1 ada"]
        assert [event.aggregate_version for event in wallet.recorded_events] == [2]
        await session.rollback()
    assert await bank.outbox() == ["1 ada"]


async def test_a_new_aggregate_keeps_its_events_over_a_released_savepoint_that_is_rolled_back_later(
    bank: Bank,
) -> None:
    """C3b: a release is no commit; the creation may yet have to be repeated."""
    async with bank.session() as session:
        wallet = Wallet.open()
        async with session.begin_nested():
            session.add(wallet)
            wallet.pay(1)
        await session.rollback()
        session.add(wallet)
        await session.commit()
    assert await bank.stream(wallet.id) == ["1 ada", "2 1"]


@pytest.mark.servers
async def test_events_in_nested_savepoints_share_the_fate_of_theirs(bank: Bank) -> None:
    """C3: released into one that is rolled back, rolled back inside one that is released."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        outer = await session.begin_nested()
        inner = await session.begin_nested()
        wallet.pay(1)
        await inner.commit()
        await outer.rollback()
        await session.refresh(wallet)
        outer = await session.begin_nested()
        wallet.pay(2)
        inner = await session.begin_nested()
        wallet.pay(4)
        await inner.rollback()
        await session.refresh(wallet)
        wallet.pay(8)
        await outer.commit()
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 2", "3 8"]
    assert await bank.row(wallet_id) == (10, 3)


async def test_a_flush_that_fails_in_a_savepoint_leaves_alone_what_it_did_not_write(bank: Bank) -> None:
    """C3: in a session that expires on commit, too, nothing has been committed yet."""
    wallet_id, other_id = await bank.open_wallet(), await bank.open_wallet("other")
    async with bank.sessions(expire_on_commit=True) as session:
        wallet, other = await loaded(session, wallet_id), await loaded(session, other_id)
        savepoint = await session.begin_nested()
        async with bank.session() as rival:
            (await loaded(rival, wallet_id)).pay(1)
            await rival.commit()
        wallet.pay(2)
        with pytest.raises(ConcurrencyError):
            await session.flush()
        await savepoint.rollback()
        assert (other.owner, other.version) == ("other", 1)


async def test_rolling_back_an_outer_savepoint_undoes_the_open_inner_ones(bank: Bank) -> None:
    """C3: a rollback to any savepoint, not only to the innermost."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet, born = await loaded(session, wallet_id), Wallet.open("born")
        outer = await session.begin_nested()
        _ = await session.begin_nested()
        wallet.pay(1)
        session.add(born)
        await session.flush()
        await outer.rollback()
        assert_stale(wallet)
        await session.refresh(wallet)
        wallet.pay(2)
        session.add(born)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 2"]
    assert await bank.stream(born.id) == ["1 born"]


async def test_a_rollback_inside_a_rolled_back_transaction_does_no_harm(bank: Bank) -> None:
    """C3: a failed flush has rolled back already when the use case does, and a savepoint before its parent."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.pay(1)
        with pytest.raises(DBAPIError):
            async with session.begin_nested():
                wallet.pay(2)
                wallet.entries.append(Entry("no text"))
                wallet.entries[0].text = None  # type: ignore[assignment]  # the database refuses it
        await session.rollback()
        await session.rollback()
        assert_stale(wallet)
        await session.refresh(wallet)
        wallet.pay(4)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 4"]


@pytest.mark.servers
async def test_a_failed_flush_leaves_nothing(bank: Bank) -> None:
    """C3: the rows of an outbox whose data was refused are refused with it."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet, broken = await loaded(session, wallet_id), Wallet.open()
        broken.owner = None  # type: ignore[assignment]  # the database refuses it
        wallet.pay(1)
        bank.emit(session, "with it")
        session.add(broken)
        with pytest.raises(DBAPIError, match="null value"):
            await session.flush()
        await session.rollback()
        await session.refresh(wallet)
        broken.owner = "mended"
        session.add(broken)
        wallet.pay(2)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 2"]
    assert await bank.stream(broken.id) == ["1 ada"]
    assert len(await bank.outbox()) == 3


@pytest.mark.servers
async def test_a_failed_commit_leaves_nothing_and_a_new_aggregate_can_be_added_again(bank: Bank) -> None:
    """C3: COMMIT itself fails, after all was flushed."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet, born = await loaded(session, wallet_id), Wallet.open("born")
        session.add(born)
        wallet.pay(1)
        bank.emit(session, "with it")
        await session.execute(text("CREATE TEMP TABLE one (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)"))
        await session.execute(text("INSERT INTO one VALUES (1), (1)"))
        with pytest.raises(DBAPIError, match="duplicate key"):
            await session.commit()
        assert_stale(wallet)
        assert born not in session
        with pytest.raises(InvalidRequestError):
            await session.commit()
        await session.rollback()
        assert await bank.outbox() == ["1 ada"]
        await session.refresh(wallet)
        wallet.pay(2)
        born.pay(4)
        session.add(born)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 2"]
    assert await bank.stream(born.id) == ["1 born", "2 4"]


@pytest.mark.servers
@pytest.mark.parametrize("flushed", [True, False])
async def test_a_born_aggregate_is_new_again_after_a_rollback_with_all_its_events(
    bank: Bank, flushed: bool
) -> None:
    """C3b: adding it again commits 1…n."""
    wallet = Wallet.open()
    async with bank.session() as session:
        session.add(wallet)
        wallet.pay(1)
        if flushed:
            await session.flush()
        wallet.pay(2)
        await session.rollback()
        assert [event.aggregate_version for event in wallet.recorded_events] == [1, 2, 3]
        wallet.pay(4)
        session.add(wallet)
        await session.commit()
    assert await bank.stream(wallet.id) == ["1 ada", "2 1", "3 2", "4 4"]
    assert await bank.row(wallet.id) == (7, 4)


async def test_a_born_aggregate_can_be_added_to_another_session_after_a_rollback(bank: Bank) -> None:
    """C3b: transient means that it belongs to nobody."""
    wallet = Wallet.open()
    async with bank.session() as session:
        session.add(wallet)
        await session.flush()
        await session.rollback()
    async with bank.session() as session:
        session.add(wallet)
        await session.commit()
    assert await bank.stream(wallet.id) == ["1 ada"]


async def test_an_aggregate_born_in_a_savepoint_is_new_again_after_its_rollback(bank: Bank) -> None:
    """C3b: since the savepoint is since the creation."""
    wallet = Wallet.open()
    async with bank.session() as session:
        savepoint = await session.begin_nested()
        session.add(wallet)
        await session.flush()
        wallet.pay(1)
        await savepoint.rollback()
        session.add(wallet)
        await session.commit()
    assert await bank.stream(wallet.id) == ["1 ada", "2 1"]


async def test_an_aggregate_new_again_keeps_its_events_when_the_rest_of_the_transaction_commits(
    bank: Bank,
) -> None:
    """C3b: a commit lets go of what it made durable, and of nothing else."""
    wallet, other = Wallet.open(), Wallet.open("other")
    async with bank.session() as session:
        savepoint = await session.begin_nested()
        session.add(wallet)
        await session.flush()
        await savepoint.rollback()
        session.add(other)
        await session.commit()
        assert other.recorded_events == ()
        assert [event.aggregate_version for event in wallet.recorded_events] == [1]
        session.add(wallet)
        await session.commit()
    assert await bank.outbox() == ["1 other", "1 ada"]


async def test_an_aggregate_born_before_the_savepoint_drops_only_what_came_since(bank: Bank) -> None:
    """C3: its row exists, so it is stale until it is loaded again."""
    wallet = Wallet.open()
    async with bank.session() as session:
        session.add(wallet)
        savepoint = await session.begin_nested()
        wallet.pay(1)
        await session.flush()
        wallet.pay(2)
        await savepoint.rollback()
        with pytest.raises(StaleAggregate):
            wallet.pay(3)
        await session.refresh(wallet)
        wallet.pay(4)
        await session.commit()
    assert await bank.stream(wallet.id) == ["1 ada", "2 4"]
    assert await bank.row(wallet.id) == (4, 2)


async def test_a_born_aggregate_whose_attributes_were_expired_is_stale_for_good_after_a_rollback(
    bank: Bank,
) -> None:
    """C3b: there is no row to load it from, and no state to store."""
    wallet = Wallet.open()
    async with bank.session() as session:
        session.add(wallet)
        await session.flush()
        session.expire(wallet)
        await session.rollback()
        assert_stale(wallet, USES_OF_ITS_ROW)
        session.add(wallet)
        with pytest.raises(StaleAggregate):
            await session.commit()
    assert await bank.outbox() == []


async def expire(session: AsyncSession, wallet: Wallet) -> None:
    session.expire(wallet)


async def expire_all(session: AsyncSession, wallet: Wallet) -> None:
    session.expire_all()


@pytest.mark.parametrize("forget", [expire, expire_all])
async def test_an_expired_aggregate_drops_what_no_flush_has_written(
    bank: Bank, forget: Callable[[AsyncSession, Wallet], Awaitable[None]]
) -> None:
    """C3a: events go with the state that they told of."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.pay(1)
        await session.flush()
        wallet.pay(2)
        await forget(session, wallet)
        assert_stale(wallet)
        await session.refresh(wallet)
        wallet.pay(4)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 1", "3 4"]
    assert await bank.row(wallet_id) == (5, 3)


async def test_a_born_aggregate_that_is_expired_and_loaded_again_counts_on(bank: Bank) -> None:
    """C3: what its row has stays recorded, what it has not is dropped."""
    wallet = Wallet.open()
    async with bank.session() as session:
        session.add(wallet)
        await session.flush()
        wallet.pay(1)
        session.expire(wallet)
        await session.refresh(wallet)
        wallet.pay(2)
        await session.commit()
    assert await bank.stream(wallet.id) == ["1 ada", "2 2"]


async def refresh(session: AsyncSession, wallet: Wallet) -> None:
    await session.refresh(wallet)


async def populate_existing(session: AsyncSession, wallet: Wallet) -> None:
    query = select(Wallet).where(wallets.c.id == wallet.id).execution_options(populate_existing=True)
    await session.execute(query)


async def with_for_update(session: AsyncSession, wallet: Wallet) -> None:
    await session.get_one(Wallet, wallet.id, with_for_update=True)


async def refresh_entries(session: AsyncSession, wallet: Wallet) -> None:
    await session.refresh(wallet, ["entries"])


@pytest.mark.parametrize("reload", [refresh, refresh_entries, populate_existing])
async def test_a_born_aggregate_that_was_loaded_since_is_stale_for_good_after_a_rollback(
    bank: Bank, reload: Callable[[AsyncSession, Wallet], Awaitable[None]]
) -> None:
    """C3b: its children are what the rows were that are gone, so to store it again would lose them."""
    wallet = Wallet.open()
    wallet.enter("bread")
    async with bank.session() as session:
        session.add(wallet)
        await session.flush()
        await reload(session, wallet)
        assert [each.text for each in wallet.entries] == ["bread"]
        await session.rollback()
        assert_stale(wallet, USES_OF_ITS_ROW)
        session.add(wallet)
        with pytest.raises(StaleAggregate):
            await session.commit()
    assert await bank.outbox() == []


async def test_a_born_aggregate_that_was_loaded_and_deleted_since_is_stale_for_good_after_a_rollback(
    bank: Bank,
) -> None:
    """C3b: the deletion does not change what its children were."""
    wallet = Wallet.open()
    wallet.enter("bread")
    async with bank.session() as session:
        session.add(wallet)
        await session.flush()
        await session.refresh(wallet)
        await session.delete(wallet)
        await session.flush()
        await session.rollback()
        assert_stale(wallet, USES_OF_ITS_ROW)
        session.add(wallet)
        with pytest.raises(StaleAggregate):
            await session.commit()
    assert await bank.outbox() == []


async def test_a_born_aggregate_that_reloaded_a_column_alone_is_new_again_after_a_rollback(
    bank: Bank,
) -> None:
    """C3b: its children are those that were stored, so it may be stored again, events and all."""
    wallet = Wallet.open()
    wallet.enter("bread")
    async with bank.session() as session:
        session.add(wallet)
        await session.flush()
        await session.refresh(wallet, ["owner"])
        await session.rollback()
        session.add(wallet)
        await session.commit()
    assert await bank.stream(wallet.id) == ["1 ada", "2 bread"]
    assert await bank.entries(wallet.id) == ["bread"]


@pytest.mark.parametrize("reload", [refresh, populate_existing])
async def test_reloading_without_a_flush_drops_what_was_recorded(
    bank: Bank, reload: Callable[[AsyncSession, Wallet], Awaitable[None]]
) -> None:
    """C3a: the attributes are overwritten, so the events that told of them go."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        with session.no_autoflush:
            wallet.pay(1)
            await reload(session, wallet)
        assert (wallet.version, wallet.balance, wallet.recorded_events) == (1, 0, ())
        wallet.pay(2)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 2"]
    assert await bank.row(wallet_id) == (2, 2)


def by_option(*options: Any) -> dict[str, Any]:
    return {"options": options, "populate_existing": True}


@pytest.mark.parametrize("kept", ["balance", "owner"])
@pytest.mark.parametrize("option", [load_only, defer])
async def test_reloading_a_part_without_a_flush_is_refused_and_leaves_no_gap(
    bank: Bank, option: Callable[..., Any], kept: str
) -> None:
    """C3a: the events would go, and the version that counts them stay."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        with session.no_autoflush:
            wallet.pay(1)
            with pytest.raises(
                UncommittedEvents, match=r"has loaded a part of <Wallet .*flush before such a"
            ):
                await session.get(Wallet, wallet_id, **by_option(option(getattr(Wallet, kept))))
        assert_stale(wallet)
        await session.refresh(wallet)
        wallet.pay(2)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 2"]
    assert await bank.row(wallet_id) == (2, 2)


@pytest.mark.parametrize("kept", ["balance", "owner"])
@pytest.mark.parametrize("option", [load_only, defer])
async def test_reloading_a_part_flushes_first_where_the_session_may(
    bank: Bank, option: Callable[..., Any], kept: str
) -> None:
    """C3: what a flush has written is in the row."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.pay(1)
        await session.get(Wallet, wallet_id, **by_option(option(getattr(Wallet, kept))))
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 1"]
    assert await bank.row(wallet_id) == (1, 2)


async def test_locking_a_loaded_aggregate_keeps_its_state_and_its_events(bank: Bank) -> None:
    """C3: SELECT FOR UPDATE overwrites no attribute that was changed, so no event goes either."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        with session.no_autoflush:
            wallet.pay(1)
            await with_for_update(session, wallet)
        wallet.pay(2)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 1", "3 2"]
    assert await bank.row(wallet_id) == (3, 3)


async def test_reloading_what_another_has_written_since_drops_what_was_recorded(bank: Bank) -> None:
    """C3a: the other writer's event has the number that the dropped one had."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session, bank.session() as rival:
        wallet = await loaded(session, wallet_id)
        with session.no_autoflush:
            wallet.pay(1)
            (await loaded(rival, wallet_id)).pay(2)
            await rival.commit()
            await populate_existing(session, wallet)
        assert (wallet.version, wallet.balance, wallet.recorded_events) == (2, 2, ())


@pytest.mark.parametrize("reload", [populate_existing, with_for_update])
async def test_reloading_flushes_first_where_the_session_may(
    bank: Bank, reload: Callable[[AsyncSession, Wallet], Awaitable[None]]
) -> None:
    """C3: what a flush has written is in the row that is loaded."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.pay(1)
        await reload(session, wallet)
        wallet.pay(2)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 1", "3 2"]


async def test_a_refresh_of_other_attributes_drops_nothing(bank: Bank) -> None:
    """C3: only the version tells which events are in the row."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        with session.no_autoflush:
            wallet.pay(1)
            await session.refresh(wallet, ["owner"])
            session.expire(wallet, ["owner"])
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 1"]


async def expire_names(session: AsyncSession, wallet: Wallet, names: list[str]) -> None:
    session.expire(wallet, names)


async def refresh_names(session: AsyncSession, wallet: Wallet, names: list[str]) -> None:
    with session.no_autoflush:
        await session.refresh(wallet, names)


@pytest.mark.parametrize("reload", [expire_names, refresh_names])
@pytest.mark.parametrize("names", [["balance"], ["owner", "balance"], ["version"], ["entries"]])
async def test_taking_back_a_part_of_what_an_event_tells_is_refused(
    bank: Bank,
    reload: Callable[[AsyncSession, Wallet, list[str]], Awaitable[None]],
    names: list[str],
) -> None:
    """C3: the event would commit without its change, or the change without its event."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.pay(1)
        wallet.enter("one")
        with pytest.raises(UncommittedEvents, match=r"its change of \w+.*expire it whole, or flush first"):
            await reload(session, wallet, names)
        await session.flush()
        await reload(session, wallet, names)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 1", "3 one"]
    assert (await bank.row(wallet_id), await bank.entries(wallet_id)) == ((1, 3), ["one"])


def expire_child(session: Session, entry: Entry) -> None:
    session.expire(entry)


def expire_text(session: Session, entry: Entry) -> None:
    session.expire(entry, ["text"])


def refresh_child(session: Session, entry: Entry) -> None:
    with session.no_autoflush:
        session.refresh(entry)


def expunge_child(session: Session, entry: Entry) -> None:
    session.expunge(entry)


TAKE_CHILD = [expire_child, expire_text, refresh_child, expunge_child]


@pytest.mark.parametrize("take", TAKE_CHILD)
async def test_taking_back_the_change_of_a_child_alone_is_refused(
    bank: Bank, take: Callable[[Session, Entry], None]
) -> None:
    """C3: the event would commit without it."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.enter("one")
        await session.commit()
        wallet.entries[0].text = "two"
        wallet.note("two")
        with pytest.raises(
            UncommittedEvents, match=r"<Wallet .*its Entry alone would drop.*flush first, or roll"
        ):
            await session.run_sync(take, wallet.entries[0])
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 one", "3 two"]
    assert await bank.entries(wallet_id) == ["two"]


async def test_expunging_a_new_child_alone_is_refused(bank: Bank) -> None:
    """C3: the event that tells of it would commit without it."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.enter("one")
        with pytest.raises(UncommittedEvents, match="to expunge its Entry alone"):
            session.expunge(wallet.entries[0])
        await session.commit()
    assert await bank.entries(wallet_id) == ["one"]


@pytest.mark.parametrize("take", TAKE_CHILD)
async def test_the_change_of_a_child_of_which_no_event_tells_may_be_taken_back_alone(
    bank: Bank, take: Callable[[Session, Entry], None]
) -> None:
    """C3: nothing else says that it happened."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.enter("one")
        await session.commit()
        wallet.entries[0].text = "two"
        await session.run_sync(take, wallet.entries[0])
        await session.commit()
    assert await bank.entries(wallet_id) == ["one"]


async def test_a_change_without_an_event_may_be_taken_back_alone(bank: Bank) -> None:
    """C3: nothing tells of it."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.balance = 7
        session.expire(wallet, ["balance"])
        await session.commit()
    assert await bank.row(wallet_id) == (0, 1)


@pytest.mark.servers
async def test_a_foreign_commit_in_between_is_counted_on_after_a_refresh(bank: Bank) -> None:
    """C3a: the number of the next event is that of the row, whoever wrote it."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session, bank.session() as foreign:
        wallet = await loaded(session, wallet_id)
        wallet.pay(1)
        (await loaded(foreign, wallet_id)).pay(2)
        await foreign.commit()
        with session.no_autoflush:
            await session.refresh(wallet)
        assert wallet.recorded_events == ()
        wallet.pay(4)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 2", "3 4"]
    assert await bank.row(wallet_id) == (6, 3)


async def test_a_deletion_that_is_rolled_back_brings_the_aggregate_back_without_its_last_events(
    bank: Bank,
) -> None:
    """C3a: delete then rollback, of the transaction and of a savepoint."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        savepoint = await session.begin_nested()
        wallet.note("farewell")
        await session.delete(wallet)
        await session.flush()
        await savepoint.rollback()
        assert_stale(wallet)
        await session.refresh(wallet)
        wallet.note("farewell again")
        await session.delete(wallet)
        await session.flush()
        await session.rollback()
        await session.refresh(wallet)
        wallet.note("stayed")
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 stayed"]


async def test_an_aggregate_born_and_deleted_in_a_rolled_back_transaction_is_new_again(bank: Bank) -> None:
    """C3b: with every event since its creation, the farewell included."""
    wallet = Wallet.open()
    async with bank.session() as session:
        session.add(wallet)
        await session.flush()
        wallet.note("farewell")
        await session.delete(wallet)
        await session.flush()
        await session.rollback()
        session.add(wallet)
        await session.commit()
    assert await bank.stream(wallet.id) == ["1 ada", "2 farewell"]


@pytest.mark.parametrize("ending", [AsyncSession.flush, AsyncSession.commit])
async def test_a_deleted_aggregate_records_nothing_more(
    bank: Bank, ending: Callable[[AsyncSession], Awaitable[None]]
) -> None:
    """C3: its row is gone, so no flush would ever see the event."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        await session.delete(wallet)
        await ending(session)
        with pytest.raises(StaleAggregate, match="deleted"):
            wallet.note("too late")
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada"]


async def test_expunging_an_aggregate_with_uncommitted_events_is_refused(bank: Bank) -> None:
    """C3: new, loaded or deleted; after the refusal nothing is lost."""
    wallet_id, doomed_id = await bank.open_wallet(), await bank.open_wallet("bob")
    async with bank.session() as session:
        new, old, doomed = (
            Wallet.open("new"),
            await loaded(session, wallet_id),
            await loaded(session, doomed_id),
        )
        session.add(new)
        old.note("old")
        doomed.note("farewell")
        await session.delete(doomed)
        for wallet in (new, old, doomed):
            with pytest.raises(UncommittedEvents, match=r"not committed.*would lose them"):
                session.expunge(wallet)
            with pytest.raises(UncommittedEvents):
                session.expunge_all()
        await session.commit()
    assert await bank.outbox() == ["1 ada", "1 bob", "1 new", "2 old", "2 farewell"]


async def test_expunging_all_with_a_waiting_bus_event_is_refused(bank: Bank) -> None:
    """C3: the bus's events wait in the session too."""
    async with bank.session() as session:
        bank.emit(session, "waiting")
        with pytest.raises(UncommittedEvents, match=r"an emitted Announced is not committed.*would lose it"):
            session.expunge_all()
        await session.commit()
        session.expunge_all()
    assert await bank.outbox() == ["- waiting"]


def change_itself(wallet: Wallet) -> None:
    wallet.balance = 9


def change_its_child(wallet: Wallet) -> None:
    wallet.entries[0].text = "never"


def add_a_child(wallet: Wallet) -> None:
    wallet.entries.append(Entry("never"))


@pytest.mark.parametrize("all_of_them", [False, True])
@pytest.mark.parametrize("change", [change_itself, change_its_child, add_a_child])
async def test_expunging_a_change_without_an_event_is_refused_before_its_flush_too(
    bank: Bank, change: Callable[[Wallet], None], all_of_them: bool
) -> None:
    """C3: a rollback would not reach it."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.enter("bread")
        await session.commit()
        change(wallet)
        with pytest.raises(
            UncommittedEvents, match=r"changes that are not committed.*; commit first, or roll back"
        ):
            session.expunge_all() if all_of_them else session.expunge(wallet)
        await session.rollback()
        session.expunge(wallet)


@pytest.mark.parametrize("all_of_them", [False, True])
@pytest.mark.parametrize("told", [False, True])
async def test_expunging_what_a_flush_has_written_is_refused_until_it_is_committed(
    bank: Bank, told: bool, all_of_them: bool
) -> None:
    """C3, C4: a rollback would not reach it, and its `revision` could hit the row that another writer has left."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        old, new = await loaded(session, wallet_id), Wallet(uuid4(), "new")
        session.add(new)
        old.balance = 9
        if told:
            old.note("old")
            new.note("new")
        async with session.begin_nested():
            await session.flush()
        for wallet in (old, new):
            with pytest.raises(UncommittedEvents, match=r"is written and not committed.*would keep"):
                session.expunge_all() if all_of_them else session.expunge(wallet)
        await session.rollback()
        with pytest.raises(StaleAggregate):
            _ = old.balance
        session.expunge_all()
    async with bank.session() as session:
        (await loaded(session, wallet_id)).balance = 1
        session.add(new)
        new.enter("child")
        await session.commit()
        session.expunge_all()
    assert await bank.row(wallet_id) == (1, 1)
    assert await bank.row(new.id) == (0, told + 1)


async def test_an_aggregate_that_a_savepoints_rollback_has_reached_can_be_expunged(bank: Bank) -> None:
    """C3: what is left of it is what the row has."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        savepoint = await session.begin_nested()
        wallet.pay(1)
        await session.flush()
        await savepoint.rollback()
        session.expunge(wallet)
        await session.commit()
    assert await bank.row(wallet_id) == (0, 1)


async def test_an_aggregate_without_uncommitted_events_can_be_expunged(bank: Bank) -> None:
    """C3: only what would be lost is guarded."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet, blank = await loaded(session, wallet_id), Wallet(wallet_id, "blank")
        session.expunge(wallet)
        session.add(blank)
        session.expunge(blank)
        session.expunge_all()
        await session.commit()
    assert await bank.row(wallet_id) == (0, 1)


@pytest.mark.parametrize("stored_before", [True, False])
async def test_merging_an_aggregate_with_events_is_refused(bank: Bank, stored_before: bool) -> None:
    """C3: a merge copies attributes, and events are none."""
    wallet = Wallet.open()
    if stored_before:
        wallet_id = await bank.open_wallet()
        async with bank.session() as session:
            wallet = await loaded(session, wallet_id)
        wallet.pay(1)
    async with bank.session() as session:
        await session.merge(wallet)
        with pytest.raises(
            VersionMoved, match=r"only record\(\) may raise the version, and merge\(\) carries no"
        ):
            await session.commit()
    assert await bank.outbox() == (["1 ada"] if stored_before else [])


@pytest.mark.parametrize("version", [3, 7])
async def test_a_version_that_moved_outside_record_is_refused(bank: Bank, version: int) -> None:
    """C3: the stream would have a gap, or the row an event too few."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.note("one")
        wallet.version = version
        with pytest.raises(VersionMoved, match=r"from version 1 to"):
            await session.commit()
    assert await bank.outbox() == ["1 ada"]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_version_that_is_set_back_is_refused_at_once(bank: Bank, version: int) -> None:
    """C3: the state that an event tells of would be stored without it."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.pay(1)
        wallet.pay(2)
        with pytest.raises(VersionMoved, match=rf"set back to {version}, and it has recorded event 3"):
            wallet.version = version
        await session.commit()
    assert await bank.outbox() == ["1 ada", "2 1", "3 2"]


@pytest.mark.parametrize("told", [False, True])
async def test_another_id_for_a_stored_aggregate_is_refused_at_once(bank: Bank, told: bool) -> None:
    """C3: its stream under the new id would be empty, or begin in the middle."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        for _ in range(2):
            with pytest.raises(IdentityMoved, match=rf"{wallet_id} .* is stored, and its id cannot become"):
                wallet.id = uuid4()
            if told:
                wallet.note("kept")
            wallet.id = UUID(str(wallet_id))
            await session.flush()
        await session.commit()
        with pytest.raises(IdentityMoved):
            wallet.id = uuid4()
    assert await bank.stream(wallet_id) == (["1 ada", "2 kept", "3 kept"] if told else ["1 ada"])


async def test_a_new_aggregate_that_claims_a_version_is_refused(bank: Bank) -> None:
    """C3: a stream begins at 1."""
    wallet = Wallet.open()
    wallet.version = 2
    async with bank.session() as session:
        session.add(wallet)
        with pytest.raises(VersionMoved, match="from version 0 to 2 with 1 recorded"):
            await session.commit()
    assert await bank.outbox() == []


async def test_a_version_set_without_being_loaded_is_refused(bank: Bank) -> None:
    """C3: nobody knows from where it moved."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        session.expire(wallet)
        wallet.version = 2
        with pytest.raises(VersionMoved, match="without being loaded"):
            await session.commit()
    assert await bank.outbox() == ["1 ada"]


async def test_a_core_update_bypasses_capture_and_invents_nothing(bank: Bank) -> None:
    """C3: the session's own picture of the row decides, and the lock finds the difference."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        await session.execute(update(wallets).values(balance=50))
        await session.commit()
    assert await bank.outbox() == ["1 ada"]
    assert await bank.row(wallet_id) == (50, 1)


@pytest.mark.parametrize("flushed", [True, False])
async def test_a_child_that_a_unit_of_work_changed_and_did_not_commit_has_lost_its_change(
    bank: Bank, flushed: bool
) -> None:
    """C3: what is taken back is all that the block did, not only what aggregates recorded."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        (await loaded(session, wallet_id)).enter("rent")
        await session.commit()
    async with (uow := SqlAlchemyUnitOfWork(bank.sessions)):
        wallet = await uow.repository(Wallet).get(wallet_id)
        assert wallet is not None
        wallet.entries[0].text = "given up"
        if flushed:
            await uow.session.flush()
    assert_stale(wallet)
    async with (uow := SqlAlchemyUnitOfWork(bank.sessions)):
        uow.repository(Wallet).add(wallet)
        await uow.commit()
    assert await bank.entries(wallet_id) == ["rent"]


async def test_what_a_unit_of_work_only_read_stays_readable_after_it(
    bank: Bank,
) -> None:
    """C3: nothing was changed, so nothing is stale; children that were loaded are at hand too."""
    wallet_id = await bank.open_wallet()
    async with (uow := SqlAlchemyUnitOfWork(bank.sessions)):
        wallet = await uow.repository(Wallet).get(wallet_id)
        assert wallet is not None
        wallet.owner = wallet.owner
    assert (wallet.owner, wallet.balance, wallet.entries) == ("ada", 0, [])
