"""C4: a flush of many rows sends a handful of statements, and finds every loser among them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import (
    bindparam,
    select,
)
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.orm.exc import StaleDataError

from outbox_kernel.errors import ConcurrencyError
from outbox_kernel.infrastructure.outbox.flush_batches import FlushConnection
from tests.bank import Bank
from tests.domain import Wallet, wallets
from tests.drivers import Driver, statements

MANY = 64
# With its first row SQLAlchemy learns what a statement needs, and the others go together.
HANDFUL = 3

Sessions = sessionmaker[Session]
Work = Callable[[Wallet], None]


def opened(sessions: Sessions, many: int = MANY) -> list[UUID]:
    """The ids of so many new wallets, in the order of their rows' locks."""
    with sessions.begin() as session:
        made = [Wallet.open(str(number)) for number in range(many)]
        session.add_all(made)
    return sorted(wallet.id for wallet in made)


def all_of(session: Session) -> list[Wallet]:
    return list(session.scalars(select(Wallet).order_by(wallets.c.id)))


def pay(wallet: Wallet) -> None:
    wallet.pay(1)


def set_balance(wallet: Wallet) -> None:
    wallet.balance += 1


async def balances(bank: Bank) -> list[tuple[int, int, int]]:
    """Balance, version and revision of every row."""
    query = select(wallets.c.balance, wallets.c.version, wallets.c.revision).order_by(wallets.c.id)
    async with bank.engine.connect() as connection:
        return [(row[0], row[1], row[2]) for row in await connection.execute(query)]


# --- a handful of statements ------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [pay, set_balance])
async def test_a_commit_that_changes_many_aggregates_sends_a_handful_of_statements(
    bank: Bank, driver: Driver, sessions: Sessions, change: Work
) -> None:
    """C4: and one after it finds the revisions that the first has left."""

    def work() -> list[list[str]]:
        opened(sessions)
        sent = []
        with sessions() as session:
            for _ in range(2):
                for wallet in all_of(session):
                    change(wallet)
                with statements(driver) as each:
                    session.commit()
                sent.append(each)
        return sent

    for sent in await driver.run(work):
        assert len(sent) <= HANDFUL, sent
    version = 3 if change is pay else 1
    assert await balances(bank) == [(2, version, 3)] * MANY
    assert len(await bank.outbox()) == MANY * version


async def test_a_commit_that_deletes_many_aggregates_sends_a_handful_of_statements(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    """C4: with their farewells."""

    def work() -> list[str]:
        opened(sessions)
        with sessions() as session:
            for wallet in all_of(session):
                wallet.note("farewell")
                session.delete(wallet)
            session.flush()
            session.rollback()
            for wallet in all_of(session):
                _ = wallet.entries
                wallet.note("farewell")
                session.delete(wallet)
            with statements(driver) as sent:
                session.commit()
        return sent

    sent = await driver.run(work)
    assert len(sent) <= HANDFUL, sent
    assert await balances(bank) == []
    assert (await bank.outbox())[MANY:] == ["2 farewell"] * MANY


async def test_rows_keep_their_own_values_whatever_has_changed_in_each(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    """C4: other columns, another type of value, a value that the server computes."""

    def work() -> None:
        opened(sessions, 12)
        with sessions() as session:
            for number, wallet in enumerate(all_of(session)):
                match number // 2 % 3:
                    case 0:
                        wallet.balance = number
                    case 1:
                        wallet.owner, wallet.balance = f"of {number}", number
                    case _:
                        wallet.balance = wallets.c.balance + number  # type: ignore[assignment]
                wallet.note(str(number))
            session.commit()
            for wallet in all_of(session):
                wallet.pay(100)
            session.commit()

    await driver.run(work)
    assert await balances(bank) == [(100 + number, 3, 3) for number in range(12)]
    async with bank.engine.connect() as connection:
        owners = list(await connection.scalars(select(wallets.c.owner).order_by(wallets.c.id)))
    assert [owner for owner in owners if owner.startswith("of")] == ["of 2", "of 3", "of 8", "of 9"]


# --- every loser ------------------------------------------------------------------------------------------


def delete(session: Session, wallet: Wallet) -> None:
    session.delete(wallet)


def change(session: Session, wallet: Wallet) -> None:
    wallet.balance = 7


def tell(session: Session, wallet: Wallet) -> None:
    wallet.note("first")


Win = Callable[[Session, Wallet], None]


@pytest.mark.parametrize("places", [[0], [1], [31], [MANY - 1], [0, 5, 40]])
@pytest.mark.parametrize("win", [delete, change, tell])
async def test_one_stale_row_among_many_loses_the_whole_flush(
    bank: Bank, driver: Driver, sessions: Sessions, win: Win, places: list[int]
) -> None:
    """C4: wherever it stands, and none of the others is stored, nor any event."""

    def work() -> None:
        ids = opened(sessions)
        with sessions() as session:
            held = all_of(session)
            with sessions.begin() as other:
                for place in places:
                    win(other, other.get_one(Wallet, ids[place]))
            for wallet in held:
                set_balance(wallet)
            held[10].note("lost")
            with pytest.raises(ConcurrencyError, match="load it again and retry"):
                session.commit()
            session.rollback()

    await driver.run(work)
    assert {row[0] for row in await balances(bank)} <= {0, 7}
    assert "2 lost" not in await bank.outbox()


@pytest.mark.parametrize("places", [[0], [1], [MANY - 1], [0, 5, 40]])
@pytest.mark.parametrize("win", [delete, change])
async def test_one_stale_row_among_many_deletions_loses_them_all(
    bank: Bank, driver: Driver, sessions: Sessions, win: Win, places: list[int]
) -> None:
    """C4: SQLAlchemy does not compare the counts of several deletions where the driver tells none."""

    def work() -> None:
        ids = opened(sessions)
        with sessions() as session:
            held = all_of(session)
            with sessions.begin() as other:
                for place in places:
                    win(other, other.get_one(Wallet, ids[place]))
            for wallet in held:
                wallet.note("farewell")
                session.delete(wallet)
            with pytest.raises(ConcurrencyError):
                session.commit()
            session.rollback()

    await driver.run(work)
    assert len(await balances(bank)) == MANY - (len(places) if win is delete else 0)
    assert "2 farewell" not in await bank.outbox()


async def test_several_deletions_by_a_session_without_capture_find_the_loser_too(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    """C4: nothing that an aggregate's events tell of is lost with it, but another's change would be."""

    def work() -> None:
        ids = opened(sessions, 3)
        with driver.sessions()() as session:
            held = all_of(session)
            with sessions.begin() as other:
                change(other, other.get_one(Wallet, ids[2]))
            for wallet in held:
                session.delete(wallet)
            with pytest.raises((ConcurrencyError, StaleDataError)):
                session.commit()

    await driver.run(work)
    assert len(await balances(bank)) == 3


async def test_a_stale_row_among_many_is_a_serialization_failure_where_the_level_says_so(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    """C4: the statement fails as a single one would."""

    def work() -> None:
        ids = opened(sessions)
        with sessions() as session:
            session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            held = all_of(session)
            with sessions.begin() as other:
                change(other, other.get_one(Wallet, ids[40]))
            for wallet in held:
                wallet.pay(1)
            with pytest.raises(ConcurrencyError, match="serialization failure"):
                session.commit()

    await driver.run(work)
    assert len(await bank.outbox()) == MANY


async def test_two_who_change_the_same_many_lock_them_in_one_order(bank: Bank) -> None:
    """C4: no deadlock, whatever the order of their changes: the second waits, and finds that it has lost."""
    for number in range(MANY):
        await bank.open_wallet(str(number))
    async with bank.session() as first, bank.session() as second:
        for session, backwards in ((first, False), (second, True)):
            held = list((await session.scalars(select(Wallet).order_by(wallets.c.id))).all())
            for wallet in reversed(held) if backwards else held:
                wallet.balance = 1 + backwards
        results = await asyncio.gather(first.commit(), second.commit(), return_exceptions=True)
    told = [str(result) for result in results if result is not None]
    assert len(told) == 1
    assert "changed or deleted a row of bank_wallets" in told[0]
    winner = results.index(None)
    assert await balances(bank) == [(1 + winner, 1, 2)] * MANY


async def test_a_savepoint_that_loses_leaves_what_was_before_it(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    """C3, C4: many rows before it and many in it."""

    def work() -> None:
        ids = opened(sessions)
        with sessions() as session:
            held = all_of(session)
            for wallet in held[:32]:
                wallet.pay(1)
            with sessions.begin() as other:
                change(other, other.get_one(Wallet, ids[50]))
            with pytest.raises(ConcurrencyError), session.begin_nested():
                for wallet in held[32:]:
                    wallet.pay(5)
            session.commit()

    await driver.run(work)
    rows = await balances(bank)
    assert rows == [(1, 2, 2)] * 32 + [(7, 1, 2) if place == 50 else (0, 1, 1) for place in range(32, MANY)]
    assert sorted(await bank.outbox())[MANY:] == ["2 1"] * 32


async def test_what_nobody_asks_the_count_of_goes_before_what_comes_next_and_is_compared_all_the_same(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    """C4: whatever another SQLAlchemy may do, a row that is kept is neither forgotten nor overtaken."""

    def work() -> None:
        ids = opened(sessions, 6)
        statement = wallets.update().where(wallets.c.id == bindparam("key"))
        options: Any = {"compiled_cache": {}}
        with driver.engine.begin() as real:
            connection = FlushConnection(real)
            for number, key in enumerate(ids[:3]):
                values = {"key": key, "balance": number}
                connection.execute(statement, values, execution_options=options)
            assert list(real.scalars(select(wallets.c.balance).order_by(wallets.c.id)))[:3] == [0, 0, 0]
            connection.execute(select(wallets))
            assert list(real.scalars(select(wallets.c.balance).order_by(wallets.c.id)))[:3] == [0, 1, 2]
            for key in (ids[3], ids[4], uuid4()):
                connection.execute(statement, {"key": key, "balance": 9}, execution_options=options)
            with pytest.raises(StaleDataError, match=r"expected to match 3 row\(s\); 2 were matched"):
                connection.send()

    await driver.run(work)
