"""C9: capture keeps its promises over asyncpg, and over psycopg 3, asynchronous and synchronous."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, insert, select, text
from sqlalchemy.event import listen
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, sessionmaker

from outbox_kernel.errors import AggregateIdTaken, ConcurrencyError, StaleAggregate
from outbox_kernel.infrastructure.errors import CannotCapture, SchemaNotMigrated
from outbox_kernel.infrastructure.outbox import (
    bus_of,
    install_capture,
)
from outbox_kernel.kernel import DomainEvent, event, event_context, sensitive
from tests import drivers
from tests.bank import Bank
from tests.domain import Announced, Wallet, bank_metadata, journal, wallets
from tests.drivers import Driver

SECRET = "hunter2"


@event("test.told_in_secret")
class Told(DomainEvent):
    what: str
    token: str = sensitive()


Sessions = sessionmaker[Session]


def opened(sessions: Sessions) -> UUID:
    with sessions.begin() as session:
        wallet = Wallet.open()
        session.add(wallet)
        return wallet.id


# --- C1, C2: nothing is lost ------------------------------------------------------------------------------


@pytest.mark.servers
async def test_what_is_recorded_and_emitted_is_stored_with_the_state(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    """C1: one event by one statement, several by another, with all that an envelope has."""

    def work() -> UUID:
        wallet_id = opened(sessions)
        with event_context(user_id="ada"), sessions.begin() as session:
            wallet = session.get_one(Wallet, wallet_id)
            wallet.pay(5)
            wallet.enter("coffee")
            bus_of(session).emit(Announced("paid"), aggregate_type=Wallet, aggregate_id=wallet_id)
            bus_of(session).emit(Announced("of nobody"))
        return wallet_id

    wallet_id = await driver.run(work)
    assert await bank.outbox() == ["1 ada", "2 5", "3 coffee", "- paid", "- of nobody"]
    assert await bank.stream(wallet_id) == ["1 ada", "2 5", "3 coffee", "- paid"]
    assert await bank.row(wallet_id) == (5, 3)
    payloads = await bank.payloads()
    assert [(name, headers) for name, _, headers in payloads] == [
        ("bank.opened", {}),
        ("bank.paid", {"user_id": "ada"}),
        ("bank.noted", {"user_id": "ada"}),
        ("bank.announced", {"user_id": "ada"}),
        ("bank.announced", {"user_id": "ada"}),
    ]
    assert payloads[1][1]["amount"] == 5


async def test_nothing_is_lost_of_what_is_recorded_late_alone_or_by_what_is_gone(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    """C2."""

    def note(session: Session, wallet_id: UUID) -> None:
        wallet = session.get_one(Wallet, wallet_id)
        wallet.pay(1)
        session.flush()
        wallet.note("after the flush")

    def work() -> UUID:
        wallet_id = opened(sessions)
        with sessions.begin() as session:
            note(session, wallet_id)
            gc.collect()
        with sessions.begin() as session:
            wallet = session.get_one(Wallet, wallet_id)
            wallet.note("farewell")
            session.delete(wallet)
        with sessions.begin() as session:
            session.execute(insert(journal).values(line="core"))
            bus_of(session).emit(Announced("beside a statement"))
        return wallet_id

    wallet_id = await driver.run(work)
    assert await bank.outbox() == ["1 ada", "2 1", "3 after the flush", "4 farewell", "- beside a statement"]
    assert await bank.row(wallet_id) is None


# --- C3: nothing is invented ------------------------------------------------------------------------------


async def test_a_rollback_takes_the_events_with_the_state(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    """C3: of a savepoint and of the whole; until it is loaded again the aggregate records nothing."""

    def work() -> UUID:
        wallet_id = opened(sessions)
        with sessions() as session:
            wallet = session.get_one(Wallet, wallet_id)
            wallet.pay(1)
            savepoint = session.begin_nested()
            wallet.pay(10)
            bus_of(session).emit(Announced("undone"))
            session.flush()
            savepoint.rollback()
            with pytest.raises(StaleAggregate):
                wallet.note("lost")
            session.refresh(wallet)
            wallet.pay(2)
            session.commit()
            wallet.pay(100)
            session.flush()
            session.rollback()
            session.refresh(wallet)
            wallet.note("kept")
            session.commit()
        return wallet_id

    wallet_id = await driver.run(work)
    assert await bank.outbox() == ["1 ada", "2 1", "3 2", "4 kept"]
    assert await bank.row(wallet_id) == (3, 4)


async def test_one_that_is_new_again_after_a_rollback_commits_its_whole_story(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    """C3b."""

    def work() -> None:
        wallet = Wallet.open()
        with sessions() as session:
            session.add(wallet)
            session.flush()
            wallet.note("second")
            session.flush()
            session.rollback()
            session.add(wallet)
            session.commit()

    await driver.run(work)
    assert await bank.outbox() == ["1 ada", "2 second"]


async def test_a_synchronous_session_loads_what_a_commit_has_expired(bank: Bank, bank_url: str) -> None:
    """C9: as SQLAlchemy does, whose sessions expire on commit unless told otherwise."""
    driver = Driver.of("psycopg, sync", bank_url)
    with driver.captured()() as session:
        wallet = Wallet.open()
        session.add(wallet)
        session.commit()
        wallet.pay(3)
        session.commit()
        assert (wallet.balance, wallet.version) == (3, 2)
    await driver.dispose()
    assert await bank.outbox() == ["1 ada", "2 3"]


# --- C4: two writers --------------------------------------------------------------------------------------


Change = Callable[[Wallet], None]


def pay(wallet: Wallet) -> None:
    wallet.pay(1)


def set_balance(wallet: Wallet) -> None:
    wallet.balance += 1


@pytest.mark.servers
@pytest.mark.parametrize("losing", [pay, set_balance])
@pytest.mark.parametrize("winning", [pay, set_balance])
async def test_of_two_writers_one_commits_and_the_other_leaves_nothing(
    bank: Bank, driver: Driver, sessions: Sessions, winning: Change, losing: Change
) -> None:
    """C4: with and without events."""

    def work() -> UUID:
        wallet_id = opened(sessions)
        with sessions() as first, sessions() as second:
            mine, theirs = first.get_one(Wallet, wallet_id), second.get_one(Wallet, wallet_id)
            winning(mine)
            losing(theirs)
            bus_of(second).emit(Announced("lost"))
            first.commit()
            with pytest.raises(ConcurrencyError):
                second.commit()
        return wallet_id

    wallet_id = await driver.run(work)
    assert await bank.outbox() == ["1 ada", "2 1"][: 1 + (winning is pay)]
    assert await bank.row(wallet_id) == (1, 1 + (winning is pay))


async def test_an_id_that_another_writer_took_is_told_as_such(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    """C4: with events and without."""

    def work() -> UUID:
        wallet_id = opened(sessions)
        twin, silent = Wallet(wallet_id, "eve"), Wallet(wallet_id, "eve")
        twin.note("eve")
        for wallet in (twin, silent):
            with sessions() as session, pytest.raises(AggregateIdTaken) as taken:
                session.add(wallet)
                session.commit()
            if wallet is twin:
                assert (taken.value.aggregate_type, taken.value.aggregate_id) == ("bank.wallet", wallet_id)
        return wallet_id

    await driver.run(work)
    assert await bank.outbox() == ["1 ada"]


async def test_a_serialization_failure_is_a_conflict(bank: Bank, driver: Driver, bank_url: str) -> None:
    """C4, C9: under REPEATABLE READ the database refuses the second write itself."""
    repeatable = Driver.of(driver.name, bank_url, isolation_level="REPEATABLE READ")
    makes = repeatable.captured()

    def work() -> None:
        wallet_id = opened(makes)
        with makes() as first, makes() as second:
            mine, theirs = first.get_one(Wallet, wallet_id), second.get_one(Wallet, wallet_id)
            mine.balance = 1
            theirs.balance = 2
            first.commit()
            with pytest.raises(ConcurrencyError, match="serialization failure"):
                second.commit()

    await repeatable.run(work)
    await repeatable.dispose()
    assert await bank.outbox() == ["1 ada"]


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
async def test_events_commit_under_every_isolation_level(
    bank: Bank, driver: Driver, bank_url: str, level: str
) -> None:
    """C9."""
    isolated = Driver.of(driver.name, bank_url, isolation_level=level)

    def work() -> None:
        with isolated.captured().begin() as session:
            session.add(Wallet.open())
            assert session.scalar(text("SHOW transaction_isolation")) == level.lower()

    await isolated.run(work)
    await isolated.dispose()
    assert await bank.outbox() == ["1 ada"]


# --- what the database refuses ----------------------------------------------------------------------------


@pytest.mark.parametrize("others", [0, 1])
async def test_no_error_shows_what_a_payload_holds(
    bank: Bank, driver: Driver, sessions: Sessions, others: int
) -> None:
    """K11: neither its parameters nor the row that the server quotes, of one event or of several."""

    def work() -> str:
        wallet = Wallet.open()
        wallet.record(Told("once", token=SECRET))
        for _ in range(others):
            wallet.note("beside")
        with sessions() as session:
            session.add(wallet)
            with pytest.raises(IntegrityError, match=r'constraint "own"') as refused:
                session.commit()
        return "".join(traceback.format_exception(refused.value))

    async with bank.engine.begin() as connection:
        await connection.execute(
            text("ALTER TABLE outbox_events ADD CONSTRAINT own CHECK (payload->>'token' <> 'hunter2')")
        )
    shown = await driver.run(work)
    async with bank.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE outbox_events DROP CONSTRAINT own"))
    assert SECRET not in shown


@pytest.mark.parametrize("name", drivers.NAMES)
async def test_a_missing_outbox_is_said_in_a_sentence(empty_postgres_url: str, name: str) -> None:
    """C6."""
    driver = Driver.of(name, empty_postgres_url)

    def work() -> None:
        bank_metadata.create_all(driver.engine)
        with (
            driver.captured()() as session,
            pytest.raises(
                SchemaNotMigrated, match=r'relation "outbox_events" does not exist.*run `outbox migrate`'
            ),
        ):
            session.add(Wallet.open())
            session.commit()

    await driver.run(work)
    await driver.dispose()


async def test_whoever_listens_to_the_engine_hears_of_the_insert_with_its_context(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    """C6."""
    heard = []

    def hear(_: object, __: object, statement: str, ___: object, context: Any, ____: object) -> None:
        assert context is not None
        heard.append(statement)

    listen(driver.engine, "before_cursor_execute", hear)
    await driver.run(lambda: opened(sessions))
    assert sum("INSERT INTO outbox_events" in statement for statement in heard) == 1
    assert await bank.outbox() == ["1 ada"]


# --- AUTOCOMMIT -------------------------------------------------------------------------------------------

REFUSED = "in AUTOCOMMIT, where an event and its state cannot commit as one"


@pytest.mark.parametrize("by", ["create_engine", "execution_options"])
async def test_a_maker_on_an_engine_in_autocommit_is_refused_as_capture_is_installed(
    driver: Driver, bank_url: str, by: str
) -> None:
    """C9: a conflict would leave an event without its state."""
    if by == "create_engine":
        engine = Driver.of(driver.name, bank_url, isolation_level="AUTOCOMMIT").engine
    else:
        engine = driver.engine.execution_options(isolation_level="AUTOCOMMIT")
    with pytest.raises(CannotCapture, match=REFUSED):
        install_capture(sessionmaker(engine))


@pytest.mark.parametrize("by", ["session", "connection", "engine"])
@pytest.mark.parametrize("what", ["event", "silence", "emitted", "recorded late"])
async def test_a_session_that_turns_out_to_be_in_autocommit_writes_nothing(
    bank: Bank, driver: Driver, by: str, what: str
) -> None:
    """C9: neither a row nor an event, whoever has set it so."""
    maker = install_capture(sessionmaker())

    def work() -> None:
        engine = driver.engine
        options = {"isolation_level": "AUTOCOMMIT"}
        with engine.connect() as own:
            bind = {
                "session": engine,
                "engine": engine.execution_options(**options),
                "connection": own.execution_options(**options) if by == "connection" else own,
            }[by]
            with maker(bind=bind) as session:
                if by == "session":
                    session.connection(execution_options=options)
                if what == "emitted":
                    bus_of(session).emit(Announced("refused"))
                else:
                    wallet = Wallet.open() if what == "event" else Wallet(uuid4(), "silent")
                    session.add(wallet)
                    if what == "recorded late":
                        listen(session, "before_flush", lambda *_: wallet.note("late"))
                with pytest.raises(CannotCapture, match=REFUSED):
                    session.commit()

    await driver.run(work)
    assert await bank.outbox() == []
    async with bank.engine.connect() as connection:
        assert await connection.scalar(select(func.count()).select_from(wallets)) == 0
