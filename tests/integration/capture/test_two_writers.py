"""C4: of two writers of one aggregate's row one commits, the other gets ConcurrencyError and leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import pytest
from sqlalchemy import delete, select, text
from sqlalchemy.exc import DBAPIError, PendingRollbackError
from sqlalchemy.ext.asyncio import AsyncSession

from outbox_kernel.errors import AggregateIdTaken, ConcurrencyError
from outbox_kernel.infrastructure.outbox import bus_of
from outbox_kernel.infrastructure.outbox.statements import find_lived
from outbox_kernel.kernel import retry_on_conflict
from tests.bank import Bank, loaded
from tests.domain import Announced, Opened, Wallet, entries, wallets

Change = Callable[[Wallet], object]


def pay_one(wallet: Wallet) -> None:
    wallet.pay(1)


def pay_two(wallet: Wallet) -> None:
    wallet.pay(2)


def set_balance(wallet: Wallet) -> None:
    """Change the row and record nothing."""
    wallet.balance += 1


def note(wallet: Wallet) -> None:
    wallet.note("noted")


@asynccontextmanager
async def two_writers(
    bank: Bank, wallet_id: UUID
) -> AsyncIterator[tuple[AsyncSession, Wallet, AsyncSession, Wallet]]:
    """Both have loaded the wallet before either writes."""
    async with bank.session() as first, bank.session() as second:
        yield first, await loaded(first, wallet_id), second, await loaded(second, wallet_id)


@pytest.mark.servers
@pytest.mark.parametrize("losing", [pay_two, set_balance, note])
@pytest.mark.parametrize("winning", [pay_one, set_balance, note])
async def test_the_second_writer_loses_whatever_either_changed(
    bank: Bank, winning: Change, losing: Change
) -> None:
    """C4: with or without events, no update is lost and no event of the loser exists."""
    wallet_id = await bank.open_wallet()
    async with two_writers(bank, wallet_id) as (first, mine, second, theirs):
        winning(mine)
        losing(theirs)
        bank.emit(second, "lost")
        await first.commit()
        held = await bank.row(wallet_id), await bank.outbox()
        with pytest.raises(ConcurrencyError, match="load it again and retry"):
            await second.commit()
        with pytest.raises(PendingRollbackError):
            await second.commit()
        await second.rollback()
        await second.commit()
    assert (await bank.row(wallet_id), await bank.outbox()) == held


async def test_a_writer_who_waits_for_the_other_loses_when_that_one_commits(bank: Bank) -> None:
    """C4: both have flushed or try to; the second waits in the database for the first."""
    wallet_id = await bank.open_wallet()
    async with two_writers(bank, wallet_id) as (first, mine, second, theirs):
        mine.pay(1)
        theirs.balance = 9
        await first.flush()
        losing = asyncio.create_task(second.commit())
        await waiting(bank, 1)
        await first.commit()
        with pytest.raises(ConcurrencyError):
            await losing
    assert await bank.row(wallet_id) == (1, 2)


async def test_a_writer_who_waits_for_the_other_wins_when_that_one_rolls_back(bank: Bank) -> None:
    """C4: who gives up has written nothing."""
    wallet_id = await bank.open_wallet()
    async with two_writers(bank, wallet_id) as (first, mine, second, theirs):
        mine.pay(1)
        theirs.pay(2)
        await first.flush()
        winning = asyncio.create_task(second.commit())
        await waiting(bank, 1)
        await first.rollback()
        await winning
    assert await bank.stream(wallet_id) == ["1 ada", "2 2"]
    assert await bank.row(wallet_id) == (2, 2)


@pytest.mark.parametrize("change", [pay_one, set_balance])
async def test_a_writer_of_a_deleted_aggregate_loses(bank: Bank, change: Change) -> None:
    """C4: the deletion was first."""
    wallet_id = await bank.open_wallet()
    async with two_writers(bank, wallet_id) as (first, mine, second, theirs):
        await first.delete(mine)
        change(theirs)
        await first.commit()
        with pytest.raises(ConcurrencyError):
            await second.commit()
    assert await bank.row(wallet_id) is None
    assert await bank.outbox() == ["1 ada"]


async def test_a_deletion_of_a_whole_that_another_has_deleted_loses(bank: Bank) -> None:
    """C4: of the part that is gone SQLAlchemy only warns before it comes to the whole, and warnings are errors here."""
    wallet = Wallet.open()
    wallet.enter("bread")
    async with bank.session() as session:
        session.add(wallet)
        await session.commit()
    async with two_writers(bank, wallet.id) as (first, mine, second, theirs):
        await first.delete(mine)
        await second.delete(theirs)
        await first.commit()
        with pytest.raises(ConcurrencyError, match="load it again and retry"):
            await second.commit()
    assert await bank.stream(wallet.id) == ["1 ada", "2 bread"]


async def test_a_deletion_of_what_another_has_changed_loses(bank: Bank) -> None:
    """C4: a deletion is a write of the row."""
    wallet_id = await bank.open_wallet()
    async with two_writers(bank, wallet_id) as (first, mine, second, theirs):
        mine.balance = 1
        await second.delete(theirs)
        await first.commit()
        with pytest.raises(ConcurrencyError):
            await second.commit()
    assert await bank.row(wallet_id) == (1, 1)


@pytest.mark.parametrize("first_was", ["changed", "deleted"])
async def test_a_deletion_among_several_loses_like_a_single_one(bank: Bank, first_was: str) -> None:
    """C4: SQLAlchemy does not compare the row counts of several deletions in one flush."""
    wallet_id, other_id = await bank.open_wallet(), await bank.open_wallet("other")
    async with two_writers(bank, wallet_id) as (first, mine, second, theirs):
        if first_was == "changed":
            mine.balance = 1
        else:
            await first.delete(mine)
        other = await loaded(second, other_id)
        theirs.note("farewell")
        await second.delete(theirs)
        await second.delete(other)
        await first.commit()
        held = await bank.row(wallet_id)
        with pytest.raises(ConcurrencyError):
            await second.commit()
    assert await bank.row(wallet_id) == held
    assert await bank.row(other_id) == (0, 1)
    assert await bank.outbox() == ["1 ada", "1 other"]


async def test_several_deletions_of_what_nobody_else_has_changed_win(bank: Bank) -> None:
    """C4: and tell their farewells."""
    ids = [await bank.open_wallet(owner) for owner in ("one", "two", "three")]
    async with bank.session() as session:
        for wallet_id in ids:
            wallet = await loaded(session, wallet_id)
            wallet.note("farewell")
            await session.delete(wallet)
        await session.commit()
    assert [await bank.row(wallet_id) for wallet_id in ids] == [None, None, None]
    assert (await bank.outbox())[3:] == ["2 farewell"] * 3


@pytest.mark.servers
async def test_a_change_of_a_child_is_protected_where_the_root_records(bank: Bank) -> None:
    """C4: the loser's child is not stored either."""
    wallet_id = await bank.open_wallet()
    async with two_writers(bank, wallet_id) as (first, mine, second, theirs):
        mine.enter("mine")
        theirs.enter("theirs")
        await first.commit()
        with pytest.raises(ConcurrencyError):
            await second.commit()
    assert await bank.entries(wallet_id) == ["mine"]
    assert await bank.stream(wallet_id) == ["1 ada", "2 mine"]


@pytest.mark.servers
async def test_a_new_aggregate_with_the_id_of_another_is_told_that_the_id_is_taken(bank: Bank) -> None:
    """C4: two writers create the same aggregate, and the outbox's unique key decides."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        twin = Wallet(wallet_id, "twin")
        twin.record(Opened("twin"))
        session.add(twin)
        with pytest.raises(AggregateIdTaken, match="another writer created it first") as caught:
            await session.commit()
    assert (caught.value.aggregate_type, caught.value.aggregate_id) == ("bank.wallet", wallet_id)
    assert await bank.outbox() == ["1 ada"]


@pytest.mark.servers
async def test_the_id_of_a_deleted_aggregate_is_taken(bank: Bank) -> None:
    """C4: its stream would begin anew under numbers that exist."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        await session.delete(await loaded(session, wallet_id))
        await session.commit()
    async with bank.session() as session:
        again = Wallet(wallet_id, "again")
        again.record(Opened("again"))
        session.add(again)
        with pytest.raises(AggregateIdTaken, match="or it lived before and was deleted"):
            await session.commit()
    assert await bank.outbox() == ["1 ada"]


@pytest.mark.servers
@pytest.mark.parametrize("at_once", [False, True])
async def test_the_id_of_a_deleted_aggregate_is_taken_without_an_event_too(bank: Bank, at_once: bool) -> None:
    """C4: it could be stored, and its first event never."""
    wallet_id, other_id = await bank.open_wallet(), await bank.open_wallet("bob")
    async with bank.session() as session:
        await session.delete(await loaded(session, wallet_id))
        await session.flush()
        if not at_once:
            await session.commit()
        session.add_all([Wallet(uuid4(), "new"), Wallet(wallet_id, "again")])
        with pytest.raises(
            AggregateIdTaken, match=rf"{wallet_id} has events already.*an id of its own"
        ) as caught:
            await session.commit()
        assert caught.value.aggregate_id == wallet_id
        await session.rollback()
    assert await bank.row(wallet_id) == ((0, 1) if at_once else None)
    assert await bank.stream(other_id) == ["1 bob"]


async def test_an_id_that_cannot_be_looked_up_stores_nothing(bank: Bank) -> None:
    """C4, C5: and what the database says of that is told as it is."""
    async with bank.session() as session, bank.engine.begin() as stranger:
        await stranger.execute(text("LOCK TABLE outbox_events IN ACCESS EXCLUSIVE MODE"))
        await session.execute(text("SET LOCAL lock_timeout = '1ms'"))
        session.add(Wallet(uuid4(), "silent"))
        with pytest.raises(DBAPIError, match="lock timeout"):
            await session.commit()
    async with bank.session() as session:
        assert (await session.scalars(select(Wallet))).all() == []


async def test_an_id_that_only_emitted_events_name_is_free(bank: Bank) -> None:
    """C4, K4: they have no number, and are of no aggregate's making."""
    wallet_id = uuid4()
    async with bank.session() as session:
        bus_of(session).emit(Announced("soon"), aggregate_type=Wallet, aggregate_id=wallet_id)
        await session.commit()
        session.add(Wallet(wallet_id, "ada"))
        await session.commit()
        (await loaded(session, wallet_id)).pay(1)
        await session.commit()
    assert await bank.stream(wallet_id) == ["- soon", "1 1"]


async def test_an_id_that_lived_and_recorded_nothing_is_free(bank: Bank) -> None:
    """C4: nothing is in the way of its first event."""
    wallet_id = uuid4()
    async with bank.session() as session:
        for _ in range(2):
            session.add(wallet := Wallet(wallet_id, "ada"))
            await session.commit()
            await session.delete(wallet)
            await session.commit()
        session.add(wallet := Wallet(wallet_id, "ada"))
        await session.commit()
        wallet.pay(1)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 1"]


async def test_of_two_first_events_of_a_wallet_that_had_none_one_is_stored(bank: Bank) -> None:
    """C4: the aggregate's row is at version 0."""
    wallet = Wallet(uuid4(), "plain")
    async with bank.session() as session:
        session.add(wallet)
        await session.commit()
    async with two_writers(bank, wallet.id) as (first, mine, second, theirs):
        mine.note("mine")
        theirs.note("theirs")
        await first.commit()
        with pytest.raises(ConcurrencyError):
            await second.commit()
    assert await bank.outbox() == ["1 mine"]


@pytest.mark.servers
async def test_writers_who_cross_aggregates_deadlock_and_one_of_them_loses(bank: Bank) -> None:
    """C4: a deadlock is a conflict, told with its sentence."""
    one, two = await bank.open_wallet("one"), await bank.open_wallet("two")
    async with bank.session() as first, bank.session() as second:
        for session, wallet_id in ((first, one), (second, two)):
            (await loaded(session, wallet_id)).pay(1)
            await session.flush()
        (await loaded(first, two)).pay(2)
        (await loaded(second, one)).pay(2)
        results = await asyncio.gather(first.commit(), second.commit(), return_exceptions=True)
    assert [type(result) for result in results if result] == [ConcurrencyError]
    assert "deadlock" in str(next(filter(None, results)))
    winner = one if results[0] is None else two
    other = two if winner == one else one
    assert await bank.stream(winner) == [f"1 {'one' if winner == one else 'two'}", "2 1"]
    assert (await bank.stream(other))[1:] == ["2 2"]


@pytest.mark.servers
async def test_a_serialization_failure_is_a_conflict(bank: Bank) -> None:
    """C4: a write after another's commit, as the isolation level sees it."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as first, bank.session() as second:
        _ = await second.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        await second.execute(select(wallets))
        (await loaded(first, wallet_id)).balance = 1
        await first.commit()
        await second.execute(select(wallets.c.balance))
        theirs = await loaded(second, wallet_id)
        theirs.balance = 2
        with pytest.raises(ConcurrencyError, match="serialization failure"):
            await second.commit()
    assert await bank.row(wallet_id) == (1, 1)


async def write_skew(bank: Bank, first: AsyncSession, second: AsyncSession) -> None:
    """Each reads all wallets and opens one more, which no serial order of the two explains."""
    for session in (first, second):
        _ = await session.connection(execution_options={"isolation_level": "SERIALIZABLE"})
        await session.execute(select(wallets))
    for session in (first, second):
        session.add(Wallet.open())
        await session.flush()


@pytest.mark.servers
async def test_a_serialization_failure_at_the_commit_itself_is_a_conflict(bank: Bank) -> None:
    """C4: SERIALIZABLE may refuse as late as COMMIT."""
    async with bank.session() as first, bank.session() as second:
        await write_skew(bank, first, second)
        await first.commit()
        with pytest.raises(ConcurrencyError, match="serialization failure"):
            await second.commit()
    assert await bank.outbox() == ["1 ada"]


async def test_a_begin_block_tells_a_serialization_failure_of_its_commit_as_a_conflict(bank: Bank) -> None:
    """C4: `async with session.begin()` commits through the transaction, past the session's own commit."""
    async with bank.session() as first, bank.session() as second:
        with pytest.raises(ConcurrencyError, match="serialization failure"):
            async with second.begin():
                await write_skew(bank, first, second)
                await first.commit()
    assert await bank.outbox() == ["1 ada"]


@pytest.mark.servers
async def test_a_use_case_wrapped_to_retry_wins_in_the_end(bank: Bank) -> None:
    """C4: it runs again from its first line, with the aggregate loaded anew."""
    wallet_id = await bank.open_wallet()
    attempts: list[int] = []

    @retry_on_conflict
    async def pay() -> None:
        async with bank.session() as session:
            wallet = await loaded(session, wallet_id)
            attempts.append(wallet.version)
            if len(attempts) < 3:
                await foreign_payment(bank, wallet_id)
            wallet.pay(1)
            await session.commit()

    await pay()
    assert attempts == [1, 2, 3]
    assert await bank.stream(wallet_id) == ["1 ada", "2 100", "3 100", "4 1"]
    assert await bank.row(wallet_id) == (201, 4)


async def test_a_use_case_that_always_loses_gives_up_after_its_attempts(bank: Bank) -> None:
    """C4: what is left is the conflict, for the caller."""
    wallet_id = await bank.open_wallet()

    @retry_on_conflict(attempts=2)
    async def pay() -> None:
        async with bank.session() as session:
            wallet = await loaded(session, wallet_id)
            await foreign_payment(bank, wallet_id)
            wallet.pay(1)
            await session.commit()

    with pytest.raises(ConcurrencyError):
        await pay()
    assert await bank.stream(wallet_id) == ["1 ada", "2 100", "3 100"]


async def test_many_writers_who_retry_all_win_and_lose_no_payment(bank: Bank) -> None:
    """C4: the row has every payment, the stream every number."""
    wallet_id = await bank.open_wallet()

    @retry_on_conflict(attempts=20)
    async def pay() -> None:
        async with bank.session() as session:
            (await loaded(session, wallet_id)).pay(1)
            await session.commit()

    await asyncio.gather(*(pay() for _ in range(5)))
    assert await bank.stream(wallet_id) == ["1 ada", *(f"{number} 1" for number in range(2, 7))]
    assert await bank.row(wallet_id) == (5, 6)


async def test_after_a_conflict_the_session_serves_on(bank: Bank) -> None:
    """C4: load again and retry, in the same session."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        await foreign_payment(bank, wallet_id)
        wallet.pay(1)
        with pytest.raises(ConcurrencyError):
            await session.commit()
        await session.rollback()
        await session.refresh(wallet)
        wallet.pay(1)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 100", "3 1"]
    assert await bank.row(wallet_id) == (101, 3)


async def test_an_autoflush_tells_a_conflict_as_a_commit_does(bank: Bank) -> None:
    """C4: a query may be what flushes."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        (await loaded(session, wallet_id)).balance = 5
        await foreign_payment(bank, wallet_id)
        with pytest.raises(ConcurrencyError):
            await session.execute(select(Wallet))


async def test_a_deletion_by_core_statement_is_a_conflict_for_the_writer(bank: Bank) -> None:
    """C4: whoever took the row away, it is gone."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        await session.execute(delete(entries))
        await session.execute(delete(wallets))
        wallet.pay(1)
        with pytest.raises(ConcurrencyError):
            await session.commit()
    assert await bank.row(wallet_id) == (0, 1)


async def test_two_who_change_different_children_of_one_root_and_record_it_conflict(bank: Bank) -> None:
    """C4: the root is what is locked."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.enter("rent")
        wallet.enter("food")
        await session.commit()
    async with two_writers(bank, wallet_id) as (first, mine, second, theirs):
        for wallet, number in ((mine, 0), (theirs, 1)):
            wallet.entries[number].text += " changed"
            wallet.note("changed")
        await first.commit()
        with pytest.raises(ConcurrencyError):
            await second.commit()
    assert len([entry for entry in await bank.entries(wallet_id) if entry.endswith("changed")]) == 1


async def foreign_payment(bank: Bank, wallet_id: UUID) -> None:
    async with bank.session() as session:
        (await loaded(session, wallet_id)).pay(100)
        await session.commit()


async def waiting(bank: Bank, writers: int) -> None:
    """Return when so many connections of this database wait for a lock."""
    query = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    async with bank.engine.connect() as connection, asyncio.timeout(10):
        while await connection.scalar(query) != writers:
            await connection.rollback()


async def test_two_new_aggregates_of_one_id_are_a_conflict_without_events_too(bank: Bank) -> None:
    """C4: the row's own key tells it then, since the outbox holds nothing of either."""
    wallet_id = uuid4()
    async with bank.session() as session:
        session.add(Wallet(wallet_id, "first"))
        await session.commit()
        session.expunge_all()
        session.add(Wallet(wallet_id, "second"))
        with pytest.raises(AggregateIdTaken, match=r"is in bank_wallets already.*take a new id"):
            await session.commit()
    assert await bank.outbox() == []


@pytest.mark.servers
async def test_whether_an_id_has_lived_is_looked_up_by_index_even_if_planned_for_an_empty_outbox(
    bank: Bank,
) -> None:
    """C4: a connection keeps its plan, and a read of the whole outbox would come with each new aggregate."""
    async with bank.engine.begin() as connection:
        await connection.exec_driver_sql("SET LOCAL plan_cache_mode = force_generic_plan")
        await connection.exec_driver_sql(f"PREPARE lived (text, uuid[]) AS {find_lived(None)}")
        plan = await connection.exec_driver_sql(f"EXPLAIN EXECUTE lived ('bank.wallet', '{{{uuid4()}}}')")
        lines = [str(row[0]) for row in plan]
        await connection.exec_driver_sql("DEALLOCATE lived")
    assert [line for line in lines if "Index Cond" in line and "aggregate_id = born.id" in line], lines
