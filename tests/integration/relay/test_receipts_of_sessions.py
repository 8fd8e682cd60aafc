"""An effect happens once whoever commits it: an injected session, one from the maker, async or in a thread (R6)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import attrs
import pytest
from sqlalchemy import Column, MetaData, Table, Text, create_engine, event, func, insert, select, text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import StaticPool

from outbox_kernel.infrastructure.errors import AlreadyHandled, RunOver
from outbox_kernel.infrastructure.outbox import install_capture
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.bank import Bank, engine_of
from tests.domain import Noted, Wallet, journal
from tests.drivers import NAMES, Driver
from tests.relaying import Stage, handler
from tests.serving import has_looked_everywhere
from tests.waiting import until

FAILS_AT_ITS_COMMIT = (
    "CREATE TEMPORARY TABLE once (number int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP",
    "INSERT INTO once VALUES (1), (1)",
)


def line(what: str) -> Any:
    return insert(journal).values(line=what)


async def make_due_again(stage: Stage) -> None:
    """As after a crash between the commit and the mark."""
    await stage.rewind()


async def by_commit(stage: Stage, what: str) -> None:
    async with stage.sessions() as session:
        await session.execute(line(what))
        await session.commit()


async def by_begin(stage: Stage, what: str) -> None:
    async with stage.sessions() as session, session.begin():
        await session.execute(line(what))


async def by_maker(stage: Stage, what: str) -> None:
    async with stage.sessions.begin() as session:
        await session.execute(line(what))


async def by_flush(stage: Stage, what: str) -> None:
    async with stage.sessions() as session:
        session.add(Wallet.open(what))
        await session.execute(line(what))
        await session.flush()
        await session.commit()


async def by_savepoint(stage: Stage, what: str) -> None:
    async with stage.sessions() as session:
        async with session.begin_nested():
            await session.execute(line(what))
        await session.commit()


async def by_connection(stage: Stage, what: str) -> None:
    """Past the session, which hears nothing of the statement."""
    async with stage.sessions() as session:
        await (await session.connection()).execute(line(what))
        await session.commit()


async def by_text(stage: Stage, what: str) -> None:
    async with stage.sessions() as session:
        await session.execute(
            text("WITH one AS (INSERT INTO bank_journal VALUES (:what)) SELECT 1"), {"what": what}
        )
        await session.commit()


async def by_text_in_a_savepoint(stage: Stage, what: str) -> None:
    async with stage.sessions() as session:
        async with session.begin_nested():
            await session.execute(text("INSERT INTO bank_journal VALUES (:what)"), {"what": what})
        await session.commit()


async def by_cte(stage: Stage, what: str) -> None:
    async with stage.sessions() as session:
        await session.execute(select(line(what).returning(journal.c.line).cte()))
        await session.commit()


WRITE_LINE = (
    "CREATE OR REPLACE FUNCTION write_line(what text) RETURNS int LANGUAGE sql "
    "AS $$ INSERT INTO bank_journal VALUES (what); SELECT 1 $$"
)


async def by_function(stage: Stage, what: str) -> None:
    await stage.witness.execute(WRITE_LINE)
    async with stage.sessions() as session:
        await session.execute(select(func.write_line(what)))
        await session.commit()


async def by_function_in_an_open_savepoint(stage: Stage, what: str) -> None:
    """Which the commit releases, and commits what is around it in the same breath."""
    await stage.witness.execute(WRITE_LINE)
    async with stage.sessions() as session:
        _ = await session.begin_nested()
        await session.execute(select(func.write_line(what)))
        await session.commit()


async def by_listener(stage: Stage, what: str) -> None:
    """That of a session, which is given the connection."""

    def write(_session: Any, _transaction: Any, connection: Any) -> None:
        connection.execute(line(what))

    async with stage.sessions() as session:
        event.listen(session.sync_session, "after_begin", write)
        await session.execute(select(journal))
        await session.commit()


WAYS = [
    *(by_commit, by_begin, by_maker, by_flush, by_savepoint, by_connection, by_text),
    *(by_text_in_a_savepoint, by_cte, by_function, by_function_in_an_open_savepoint, by_listener),
]


@pytest.mark.parametrize("way", WAYS)
async def test_a_session_leaves_a_receipt_and_its_effect_happens_once(stage: Stage, way: Any) -> None:
    """R6."""

    async def act(event: Any) -> None:
        await way(stage, event.what)

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert await stage.receipts() == [("a", "h", "done")]
    await make_due_again(stage)
    await stage.drain(handler("h", act))
    assert await stage.journal() == ["a"]
    assert (await stage.events())["a"] == "delivered"
    assert await stage.deliveries() == {}


@pytest.mark.parametrize("way", WAYS)
async def test_a_second_writing_commit_of_a_session_is_dead(stage: Stage, way: Any) -> None:
    """R6."""

    async def act(event: Any) -> None:
        await stage.enter("first")
        await way(stage, "second")

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert await stage.journal() == ["first"]
    assert await stage.deliveries() == {("a", "h"): "dead"}


async def test_an_injected_session_leaves_a_receipt(stage: Stage) -> None:
    """R6: the scope of a run gives one, and ends it."""

    @attrs.frozen
    class Booking:
        session: AsyncSession

        async def handle(self, event: Noted) -> None:
            await self.session.execute(line(event.what))
            await self.session.commit()

    await stage.put("a")
    for _ in range(2):
        await stage.drain(HandlerRegistration("h", Booking, (Noted,)))
        await make_due_again(stage)
    assert await stage.journal() == ["a"]
    assert await stage.receipts() == [("a", "h", "done")]


@pytest.mark.parametrize("begins", [True, False])
async def test_a_synchronous_session_in_a_thread_leaves_a_receipt(stage: Stage, begins: bool) -> None:
    """R6: on an engine and a driver of its own."""
    engine = create_engine(stage.engine.url.set(drivername="postgresql+psycopg"))
    sessions = install_capture(sessionmaker(engine))

    def enter(what: str) -> None:
        if begins:
            with sessions.begin() as session:
                session.execute(line(what))
        else:
            with sessions() as session:
                session.execute(line(what))
                session.commit()

    async def act(event: Any) -> None:
        await asyncio.to_thread(enter, event.what)

    await stage.put("a")
    for _ in range(2):
        await stage.drain(handler("h", act))
        await make_due_again(stage)
    assert await stage.journal() == ["a"]
    assert await stage.receipts() == [("a", "h", "done")]
    engine.dispose()


async def test_a_session_over_async_psycopg_leaves_a_receipt(stage: Stage) -> None:
    """R6, C9."""
    engine = create_async_engine(stage.engine.url.set(drivername="postgresql+psycopg"))
    sessions = install_capture(async_sessionmaker(engine))

    async def act(event: Any) -> None:
        async with sessions.begin() as session:
            await session.execute(line(event.what))

    await stage.put("a")
    for _ in range(2):
        await stage.drain(handler("h", act))
        await make_due_again(stage)
    assert await stage.journal() == ["a"]
    assert await stage.receipts() == [("a", "h", "done")]
    await engine.dispose()


async def test_a_synchronous_handler_leaves_a_receipt_and_commits_once(stage: Stage) -> None:
    """K5, R6: it runs in a thread of its own."""
    engine = create_engine(stage.engine.url.set(drivername="postgresql+psycopg"))
    sessions = install_capture(sessionmaker(engine))
    twice: list[bool] = []

    def book(event: Noted) -> None:
        for _ in range(1 + len(twice)):
            with sessions.begin() as session:
                session.execute(line(event.what))

    await stage.put("a")
    for _ in range(2):
        await stage.drain(HandlerRegistration("h", book, (Noted,)))
        await make_due_again(stage)
    assert await stage.journal() == ["a"]
    assert await stage.receipts() == [("a", "h", "done")]
    twice.append(True)
    await stage.put("b")
    await stage.drain(HandlerRegistration("h", book, (Noted,)))
    assert await stage.journal() == ["a", "b"]
    assert await stage.deliveries() == {("b", "h"): "dead"}
    engine.dispose()


async def test_two_commits_of_one_session_in_a_thread_are_dead(stage: Stage) -> None:
    """R6."""
    engine = create_engine(stage.engine.url.set(drivername="postgresql+psycopg"))
    sessions = install_capture(sessionmaker(engine))

    def enter() -> None:
        with sessions() as session:
            for what in ("first", "second"):
                session.execute(line(what))
                session.commit()

    async def act(event: Any) -> None:
        await asyncio.to_thread(enter)

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert await stage.journal() == ["first"]
    assert await stage.deliveries() == {("a", "h"): "dead"}
    engine.dispose()


async def test_what_only_read_writes_no_receipt_and_commits_freely(stage: Stage) -> None:
    """R6: before the effect and after it, however often."""
    read: list[int] = []

    async def look() -> None:
        async with stage.sessions() as session:
            read.append(len((await session.scalars(select(journal))).all()))
            await session.execute(text("UPDATE bank_journal SET line = 'b' WHERE line = 'not there'"))
            await session.commit()
        async with stage.uow() as uow:
            await uow.commit()

    async def act(event: Any) -> None:
        await look()
        await look()
        receipts.append(await stage.receipts())
        await stage.enter(event.what)
        await look()

    receipts: list[Any] = []
    await stage.put("a")
    await stage.drain(handler("h", act))
    assert (receipts, read) == ([[]], [0, 0, 1])
    assert await stage.events() == {"a": "delivered"}
    assert await stage.deliveries() == {}
    assert await stage.receipts() == [("a", "h", "done")]


async def test_a_duplicate_leaves_a_session_rolled_back_and_usable(stage: Stage) -> None:
    """R6: what it changed is gone, also where the handler goes on with it."""
    left: list[str] = []

    async def act(event: Any) -> None:
        async with stage.sessions() as session:
            await session.execute(line(event.what))
            with suppress(AlreadyHandled):
                await session.commit()
            left.append(str(session.in_transaction()))
            await session.execute(select(journal))
            await session.commit()

    await stage.put("a")
    await stage.drain(handler("h", act))
    await make_due_again(stage)
    await stage.drain(handler("h", act))
    assert left == ["False", "False"]
    assert await stage.journal() == ["a"]
    assert await stage.events() == {"a": "delivered"}
    assert await stage.deliveries() == {}


async def test_what_a_session_emits_goes_with_a_duplicate(stage: Stage) -> None:
    """R6: what a handler emits is captured, and counts as an effect."""

    async def act(event: Any) -> None:
        async with stage.sessions() as session:
            Bank.emit(session, "told")
            await session.commit()

    await stage.put("a")
    for _ in range(2):
        await stage.drain(handler("h", act, Noted))
        await make_due_again(stage)
    assert list(await stage.events()) == ["a", "told"]
    assert await stage.receipts() == [("a", "h", "done")]


async def test_a_listener_that_fails_after_the_commit_leaves_it_committed(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """R6: the effect and its receipt are durable; it must not run again, nor commit more."""

    async def act(event: Any) -> None:
        async with stage.sessions() as session:
            transaction = await session.begin()
            await session.execute(line(event.what))
            sync: Any = transaction.sync_transaction
            sync._remove_snapshot = fail  # noqa: SLF001 - what comes between the COMMIT and the caller
            await session.commit()

    def fail() -> None:
        raise ValueError("no snapshot")

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert await stage.journal() == ["a"]
    assert await stage.deliveries() == {("a", "h"): "done"}
    assert "after its effect had committed" in caplog.text


async def test_a_session_whose_relay_was_replaced_commits_nothing(stage: Stage) -> None:
    """R3, R6."""
    refused: list[RunOver] = []

    async def act(event: Any) -> None:
        await until(lambda: has_looked_everywhere(relay))
        await stage.witness.execute("UPDATE outbox_relays SET expires_at = clock_timestamp()")
        try:
            await by_commit(stage, event.what)
        except RunOver as error:
            refused.append(error)

    await stage.put("a")
    relay = stage.relay(handler("h", act))
    await relay.run_once()
    assert len(refused) == 1
    assert (await stage.journal(), await stage.receipts()) == ([], [])


async def test_a_session_that_has_joined_a_transaction_leaves_the_receipt_to_nobody(stage: Stage) -> None:
    """R6: who owns the connection commits, which no session hears of: at least once, as the docs say."""

    async def act(event: Any) -> None:
        async with stage.engine.begin() as connection, stage.sessions(bind=connection) as session:
            await session.execute(line(event.what))
            await session.commit()

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert await stage.journal() == ["a"]
    assert await stage.receipts() == []


async def test_a_twophase_session_is_refused_with_a_sentence(stage: Stage) -> None:
    """R6: no receipt can join what is prepared."""
    engine = create_engine(stage.engine.url.set(drivername="postgresql+psycopg"))
    sessions = install_capture(sessionmaker(engine, twophase=True))

    def enter() -> None:
        with sessions() as session:
            session.commit()

    async def act(event: Any) -> None:
        await asyncio.to_thread(enter)

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert "twophase=True" in (await stage.status("a"))["error_message"]
    engine.dispose()


async def test_a_commit_in_another_database_takes_no_receipt(stage: Stage, elsewhere: Bank) -> None:
    """R6: it is at least once, and stands in nobody's way."""

    async def act(event: Any) -> None:
        for what in ("there", "there too"):
            async with elsewhere.session() as session:
                await session.execute(line(what))
                await session.commit()
        await stage.enter("here")
        async with elsewhere.session() as session:
            await session.execute(line("last"))
            await session.commit()

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert await stage.journal() == ["here"]
    assert await elsewhere.journal() == ["there", "there too", "last"]
    assert await stage.receipts() == [("a", "h", "done")]
    assert await stage.deliveries() == {}


async def test_a_commit_in_a_database_of_another_kind_takes_no_receipt(stage: Stage) -> None:
    """R6: it cannot even be asked which it is."""
    notes = Table("notes", MetaData(), Column("what", Text))
    engine = create_engine("sqlite://", poolclass=StaticPool)
    notes.metadata.create_all(engine)
    make = install_capture(sessionmaker(binds={notes: engine}))

    async def act(event: Any) -> None:
        for what in ("there", "there too"):
            with make.begin() as session:
                session.execute(insert(notes).values(what=what))
        await stage.enter("here")

    await stage.put("a")
    await stage.drain(handler("h", act))
    with engine.connect() as connection:
        assert list(connection.scalars(select(notes))) == ["there", "there too"]
    engine.dispose()
    assert await stage.journal() == ["here"]
    assert await stage.receipts() == [("a", "h", "done")]


async def test_a_commit_that_failed_at_the_server_cannot_be_made_again(stage: Stage) -> None:
    """R6: its effect is gone, so that a receipt of it would be one of nothing."""
    again: list[BaseException] = []

    async def act(event: Any) -> None:
        async with stage.sessions() as session:
            await session.execute(line("never"))
            for statement in FAILS_AT_ITS_COMMIT:
                await session.execute(text(statement))
            with pytest.raises(IntegrityError):
                await session.commit()
            try:
                await session.commit()
            except SQLAlchemyError as error:
                again.append(error)
                raise

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert len(again) == 1
    assert (await stage.journal(), await stage.receipts()) == ([], [])
    assert await stage.deliveries() == {("a", "h"): "waiting"}


async def test_the_outbox_is_known_by_whatever_engine(stage: Stage) -> None:
    """R6: one of the handler's own, and with options."""
    other = engine_of(stage.engine.url.render_as_string(hide_password=False))
    sessions = Bank.on(other.execution_options(logging_token="other")).sessions

    async def act(event: Any) -> None:
        async with sessions.begin() as session:
            await session.execute(line("first"))
        async with sessions.begin() as session:
            await session.execute(line("second"))

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert await stage.journal() == ["first"]
    assert await stage.deliveries() == {("a", "h"): "dead"}
    await other.dispose()


async def test_a_session_over_two_engines_of_the_outbox_cannot_commit_both(stage: Stage) -> None:
    """R6: they are two transactions, and one receipt cannot be in both."""
    other = engine_of(stage.engine.url.render_as_string(hide_password=False))

    async def act(event: Any) -> None:
        async with stage.sessions() as session:
            await session.execute(line("one"))
            await session.execute(line("other"), bind_arguments={"bind": other.sync_engine})
            await session.commit()

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert await stage.journal() == []
    assert await stage.deliveries() == {("a", "h"): "dead"}
    await other.dispose()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("set_by", ["statement", "engine"])
async def test_a_read_only_transaction_takes_no_receipt(stage: Stage, name: str, set_by: str) -> None:
    """R6: the server lets none be written there; and the effect that follows has its own."""
    driver = Driver.of(
        name, stage.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    )
    engine = driver.engine
    if set_by == "engine":
        engine = engine.execution_options(postgresql_readonly=True)
    sessions = install_capture(sessionmaker(engine))

    def look() -> None:
        with sessions.begin() as session:
            if set_by == "statement":
                session.execute(text("SET TRANSACTION READ ONLY"))
            session.execute(text("SELECT * FROM bank_journal"))

    async def act(event: Any) -> None:
        await driver.run(look)
        await stage.enter(event.what)

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert await stage.journal() == ["a"]
    assert await stage.receipts() == [("a", "h", "done")]
    assert await stage.deliveries() == {}
    await driver.dispose()


@pytest.mark.parametrize("name", NAMES[:2])
async def test_a_read_only_run_that_is_atomic_takes_no_receipt(stage: Stage, name: str) -> None:
    """R6."""
    driver = Driver.of(
        name, stage.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    )
    sessions = install_capture(sessionmaker(driver.engine.execution_options(postgresql_readonly=True)))

    def look() -> None:
        with sessions.begin() as session:
            session.execute(select(journal))

    async def act(event: Any) -> None:
        await driver.run(look)

    await stage.put("a")
    await stage.drain(handler("h", act, atomic=True))
    assert await stage.receipts() == []
    assert await stage.events() == {"a": "delivered"}
    assert await stage.deliveries() == {}
    await driver.dispose()


async def lock(session: AsyncSession) -> None:
    await session.execute(select(journal).with_for_update())


async def write_and_take_back(session: AsyncSession) -> None:
    for statement in (line("never"), text("INSERT INTO bank_journal VALUES ('never, either')")):
        savepoint = await session.begin_nested()
        await session.execute(statement)
        session.add(Wallet.open("nobody"))
        await session.flush()
        await savepoint.rollback()


@pytest.mark.parametrize("way", [lock, write_and_take_back])
async def test_what_leaves_nothing_behind_takes_no_receipt(stage: Stage, way: Any) -> None:
    """R6: so that no failure after it costs the effect, and it is no second one."""
    await stage.witness.execute("INSERT INTO bank_journal VALUES ('0')")
    failing = [True]

    async def act(event: Any) -> None:
        async with stage.sessions() as session:
            await way(session)
            await session.commit()
        if failing:
            raise ConnectionError(failing.pop())
        await stage.enter("effect")
        async with stage.sessions() as session:
            await way(session)
            await session.commit()

    await stage.put("a")
    await stage.drain(handler("h", act))
    assert (await stage.receipts(), await stage.deliveries()) == ([], {("a", "h"): "waiting"})
    await stage.drain(handler("h", act), at=10)
    assert await stage.journal() == ["0", "effect"]
    assert await stage.receipts() == [("a", "h", "done")]
    assert await stage.deliveries() == {("a", "h"): "done"}
