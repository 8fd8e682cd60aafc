"""O6: what is sensitive is sealed in the transaction that stores it, with a key that nobody has destroyed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.schema import CreateSchema, DropSchema

from outbox_kernel.errors import (
    BadSetting,
    CannotCapture,
    ConcurrencyError,
    MasterKeyUnfit,
    SchemaNotMigrated,
    UnserializableEvent,
)
from outbox_kernel.infrastructure.master_keys import MasterKeys, new_master_key
from outbox_kernel.infrastructure.outbox import (
    OutboxEventDispatcher,
    OutboxMiddleware,
    OutboxRecord,
    bus_of,
    install_capture,
    map_outbox_table,
)
from outbox_kernel.infrastructure.outbox.key_table import outbox_subject_keys
from outbox_kernel.infrastructure.outbox.sql.subject_keys import FORGET
from outbox_kernel.infrastructure.outbox.tables import outbox_events_in
from outbox_kernel.kernel import EventBus, retry_on_conflict
from tests.bank import Bank, loaded
from tests.domain import Announced, Wallet
from tests.drivers import Driver, statements
from tests.waiting import until
from tests.whispers import SECRET, PassedOn, Whispered, forgotten, keys_of, secrets_told, stored

Sessions = sessionmaker[Session]


@pytest.mark.servers
async def test_what_is_recorded_and_emitted_is_stored_sealed(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    """One event with its aggregate's row, several of one flush, one that is emitted: whatever the driver."""
    ada, bo = uuid4(), uuid4()

    def work() -> None:
        with sessions.begin() as session:
            wallet = Wallet(uuid4(), "ada")
            wallet.record(Whispered("alone", ada))
            session.add(wallet)
        with sessions.begin() as session:
            wallet = session.get_one(Wallet, wallet.id)
            wallet.record(Whispered("one", ada, SECRET.upper()))
            wallet.record(Announced("beside"))
            wallet.record(Whispered("other", bo))
            bus_of(session).emit(Whispered("nothing", ada, None))

    await driver.run(work)
    assert await bank.outbox() == ["1 alone", "2 one", "3 beside", "4 other", "- nothing"]
    assert await secrets_told(bank.engine) == [SECRET, SECRET.upper(), SECRET, None]
    assert SECRET not in (await stored(bank.engine)).lower()
    for who in (ada, bo):
        [(_, is_destroyed)] = await keys_of(bank.engine, who)
        assert not is_destroyed


async def test_it_costs_one_statement_a_flush_and_nothing_where_nothing_is_sealed(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    def work() -> list[int]:
        counts = []
        for kinds in (
            (Announced("a"), Announced("b")),
            (Whispered("a", uuid4()), PassedOn("b", uuid4(), "bo")),
        ):
            with statements(driver) as sent, sessions.begin() as session:
                for each in kinds:
                    bus_of(session).emit(each)
            counts.append(len(sent))
        return counts

    assert await driver.run(work) == [1, 2]


async def test_a_key_is_of_the_transaction_that_makes_it(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    """C3: a rollback, to a savepoint too, takes it along, and what is tried again has another."""
    ada, bo = uuid4(), uuid4()

    def work() -> None:
        with sessions() as session:
            bus_of(session).emit(Whispered("given up", ada))
            session.flush()
            session.rollback()
            savepoint = session.begin_nested()
            bus_of(session).emit(Whispered("given up", bo))
            session.flush()
            savepoint.rollback()
            bus_of(session).emit(Whispered("kept", ada))
            session.commit()

    await driver.run(work)
    assert await secrets_told(bank.engine) == [SECRET]
    assert len(await keys_of(bank.engine, ada)) == 1
    assert await keys_of(bank.engine, bo) == []


async def test_without_a_master_key_nothing_is_stored(
    bank: Bank, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C7: it is refused before the write, and what needs no key is none the worse for it."""
    monkeypatch.delenv("OUTBOX_MASTER_KEYS")
    sessions = driver.captured(expire_on_commit=False)

    def work() -> None:
        wallet = Wallet.open("ada")
        with sessions() as session:
            session.add(wallet)
            bus_of(session).emit(Whispered("refused", uuid4()))
            with pytest.raises(
                BadSetting, match=r"OUTBOX_MASTER_KEYS is not set, and event .* encrypted: make a key"
            ):
                session.commit()
            session.rollback()
            session.add(Wallet.open("bo"))
            session.commit()

    await driver.run(work)
    assert await bank.outbox() == ["1 bo"]


async def test_who_cannot_open_a_key_writes_nothing(bank: Bank) -> None:
    """A process with other master keys than the one that made the key says so."""
    ada, wallet_id = uuid4(), await bank.open_wallet()
    async with bank.session() as session:
        bank_bus(session).emit(Whispered("first", ada))
        await session.commit()
    others = MasterKeys.parse(new_master_key("another"))
    strangers = install_capture(async_sessionmaker(bank.engine, expire_on_commit=False), master_keys=others)
    async with strangers() as session:
        (await loaded(session, wallet_id)).record(Whispered("second", ada))
        with pytest.raises(
            MasterKeyUnfit, match="sealed fields need master key 'of-the-tests', which is not in"
        ):
            await session.commit()
    assert await secrets_told(bank.engine) == [SECRET]
    assert await bank.stream(wallet_id) == ["1 ada"]


def bank_bus(session: AsyncSession) -> EventBus:
    return bus_of(session)


async def test_a_subject_that_is_too_long_is_refused_before_the_write(bank: Bank) -> None:
    """C7."""
    async with bank.session() as session:
        bank_bus(session).emit(PassedOn("refused", uuid4(), "b" * 501))
        with pytest.raises(
            UnserializableEvent, match="field 'address' is kept for the subject in 'whom', which has 501"
        ):
            await session.commit()
    assert await stored(bank.engine) == ""


async def test_a_scoped_session_and_a_maker_take_master_keys_of_their_own(bank: Bank) -> None:
    own = MasterKeys.parse(new_master_key("own"))
    maker = install_capture(async_sessionmaker(bank.engine), master_keys=own)
    async with maker() as session:
        bank_bus(session).emit(Whispered("what", uuid4()))
        await session.commit()
    async with bank.engine.connect() as connection:
        assert await connection.scalar(text("SELECT master_key FROM outbox_subject_keys")) == "own"


# --- forgetting -------------------------------------------------------------------------------------------


async def test_what_is_told_after_a_subject_was_forgotten_has_another_key(
    bank: Bank, driver: Driver, sessions: Sessions
) -> None:
    """A process remembers no key: one that is destroyed seals nothing any more."""
    ada = uuid4()

    def tell(what: str) -> None:
        with sessions.begin() as session:
            bus_of(session).emit(Whispered(what, ada, what))

    await driver.run(lambda: tell("before"))
    await forgotten(bank.engine, ada)
    await driver.run(lambda: tell("after"))
    assert await secrets_told(bank.engine) == [None, "after"]
    assert [is_destroyed for _, is_destroyed in await keys_of(bank.engine, ada)] == [True, False]


async def test_forgetting_waits_for_whoever_writes_with_the_key(bank: Bank) -> None:
    """What commits before it is forgotten with the rest, what commits after it is not."""
    ada = uuid4()
    async with bank.session() as session:
        bank_bus(session).emit(Whispered("first", ada))
        await session.commit()
        bank_bus(session).emit(Whispered("under way", ada))
        await session.flush()
        forgetting = asyncio.create_task(forgotten(bank.engine, ada))
        await somebody_waits(bank)
        assert not forgetting.done()
        await session.commit()
    await forgetting
    assert await secrets_told(bank.engine) == [None, None]


async def test_who_writes_while_a_subject_is_being_forgotten_waits_and_has_a_new_key(bank: Bank) -> None:
    ada = uuid4()
    async with bank.session() as session:
        bank_bus(session).emit(Whispered("first", ada))
        await session.commit()
    async with bank.engine.connect() as forgetting, bank.session() as session:
        text_of, _ = FORGET.in_schema(None)
        await forgetting.exec_driver_sql(text_of, (None, str(ada)))
        bank_bus(session).emit(Whispered("second", ada, "second"))
        writing = asyncio.create_task(session.commit())
        await somebody_waits(bank)
        await forgetting.commit()
        await writing
    assert await secrets_told(bank.engine) == [None, "second"]


async def test_two_who_first_tell_of_one_subject_at_once_share_its_key(bank: Bank) -> None:
    ada = uuid4()
    async with bank.session() as one, bank.session() as other:
        bank_bus(one).emit(Whispered("one", ada, "one"))
        await one.flush()
        bank_bus(other).emit(Whispered("other", ada, "other"))
        second = asyncio.create_task(other.commit())
        await somebody_waits(bank)
        await one.commit()
        await second
    assert sorted(map(str, await secrets_told(bank.engine))) == ["one", "other"]
    assert len(await keys_of(bank.engine, ada)) == 1


@pytest.mark.parametrize("meanwhile", ["made", "forgotten"])
async def test_a_transaction_of_one_snapshot_is_told_of_what_it_cannot_see(
    bank: Bank, meanwhile: str
) -> None:
    """C4: it would seal with a key that is destroyed, or make a second one."""
    ada = uuid4()

    async def tell() -> None:
        async with bank.session() as session:
            bank_bus(session).emit(Whispered("what", ada))
            await session.commit()

    if meanwhile == "forgotten":
        await tell()
    async with bank.session() as session:
        _ = await session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        await session.execute(text("SELECT 1 FROM outbox_events"))
        if meanwhile == "forgotten":
            await forgotten(bank.engine, ada)
        else:
            await tell()
        bank_bus(session).emit(Whispered("late", ada))
        with pytest.raises(ConcurrencyError, match="load again and retry"):
            await session.commit()


async def somebody_waits(bank: Bank) -> None:
    """Return once a session of this database waits for a lock."""
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    async with bank.engine.connect() as connection:
        _ = await connection.execution_options(isolation_level="AUTOCOMMIT")

        async def waits() -> bool:
            return bool(await connection.scalar(waiting))

        await until(waits)


# --- by hand ----------------------------------------------------------------------------------------------


@pytest.fixture
async def plain(bank: Bank) -> AsyncIterator[AsyncSession]:
    """A session without capture."""
    async with async_sessionmaker(bank.engine, expire_on_commit=False)() as session:
        yield session


async def test_what_is_dispatched_into_a_session_without_capture_is_sealed_in_its_flush(
    bank: Bank, plain: AsyncSession
) -> None:
    """K6."""
    bus, ada = EventBus(), uuid4()
    bus.emit(Whispered("one", ada))
    bus.emit(Announced("beside"))
    bus.emit(Whispered("other", ada, None))
    assert await OutboxMiddleware.flush(plain, bus) == 3
    await plain.commit()
    assert await bank.outbox() == ["- one", "- beside", "- other"]
    assert await secrets_told(bank.engine) == [SECRET, None]
    assert SECRET not in await stored(bank.engine)


async def test_it_is_sealed_by_the_master_keys_that_the_dispatcher_has(
    bank: Bank, plain: AsyncSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OUTBOX_MASTER_KEYS")
    await OutboxEventDispatcher(plain).dispatch([Whispered("refused", uuid4())])
    with pytest.raises(BadSetting, match="OUTBOX_MASTER_KEYS is not set"):
        await plain.commit()
    await plain.rollback()
    keys = MasterKeys.parse(new_master_key("given"))
    await OutboxEventDispatcher(plain, master_keys=keys).dispatch([Whispered("what", uuid4())])
    await plain.commit()
    async with bank.engine.connect() as connection:
        assert await connection.scalar(text("SELECT master_key FROM outbox_subject_keys")) == "given"


@pytest.mark.parametrize("name", ["psycopg, async", "psycopg, sync"])
async def test_psycopg_seals_it_too(bank: Bank, bank_url: str, name: str) -> None:
    driver = Driver.of(name, bank_url)

    def work() -> None:
        with driver.sessions().begin() as session:
            session.add(record(Whispered("what", uuid4())))

    await driver.run(work)
    await driver.dispose()
    assert await secrets_told(bank.engine) == [SECRET]


def record(event: Whispered) -> OutboxRecord:
    from outbox_kernel.kernel.serialization import serialize_event

    map_outbox_table()
    return OutboxRecord(
        event_id=event.event_id,
        event_type="whisper.told",
        event_version=1,
        occurred_at=event.occurred_at,
        payload=json.loads(serialize_event(event)),
    )


async def test_a_row_that_is_sealed_is_written_as_it_is(bank: Bank, plain: AsyncSession) -> None:
    """As by who copies rows from one outbox to another: nothing is sealed twice."""
    plain.add(made := record(Whispered("what", uuid4())))
    await plain.commit()
    sealed = made.payload
    assert {*sealed} == {"event_id", "occurred_at", "what", "who", "$sealed"}
    await plain.execute(text("DELETE FROM outbox_events"))
    plain.expunge(made)
    again = record(Whispered("what", uuid4()))
    again.event_id, again.payload = made.event_id, sealed
    plain.add(again)
    await plain.commit()
    assert await secrets_told(bank.engine) == [SECRET]


async def test_a_driver_that_is_not_ours_is_refused(bank_url: str) -> None:
    class Connection:
        class dialect:  # noqa: N801 - SQLAlchemy's name
            driver = "psycopg2"

    from outbox_kernel.infrastructure.outbox.sealing.records import seal_record

    with pytest.raises(CannotCapture, match="this session uses psycopg2"):
        seal_record(None, Connection, record(Whispered("what", uuid4())))  # type: ignore[arg-type]


# --- places -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["captured", "by hand"])
async def test_the_keys_follow_the_outbox_into_another_schema(bank: Bank, way: str) -> None:
    """C9: one that is named, and one to which a map of schemas moves it."""
    tenant = 'of "Ada" 100%'
    async with bank.engine.begin() as connection:
        await connection.execute(CreateSchema(tenant))
        await connection.run_sync(outbox_events_in(tenant).create, checkfirst=True)
        await connection.run_sync(_keys_in(tenant).create)
    moved = bank.engine.execution_options(schema_translate_map={None: tenant})
    try:
        maker: Any = async_sessionmaker(moved, expire_on_commit=False)
        async with (install_capture(maker) if way == "captured" else maker)() as session:
            await OutboxEventDispatcher(session).dispatch([Whispered("what", uuid4())])
            await session.commit()
        async with bank.engine.connect() as connection:
            found = await connection.scalar(
                text('SELECT count(*) FROM "of ""Ada"" 100%".outbox_subject_keys')
            )
            assert found == 1
        assert await stored(bank.engine) == ""
    finally:
        async with bank.engine.begin() as connection:
            await connection.execute(DropSchema(tenant, cascade=True))


def _keys_in(schema: str) -> Table:
    return outbox_subject_keys.to_metadata(MetaData(), schema=schema)


async def test_a_database_without_the_table_is_a_sentence(bank: Bank) -> None:
    async with bank.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE outbox_subject_keys RENAME TO elsewhere"))
    try:
        async with bank.session() as session:
            bank_bus(session).emit(Whispered("what", uuid4()))
            with pytest.raises(SchemaNotMigrated, match=r"outbox_subject_keys.*run `outbox migrate`"):
                await session.commit()
    finally:
        async with bank.engine.begin() as connection:
            await connection.execute(text("ALTER TABLE elsewhere RENAME TO outbox_subject_keys"))


async def test_an_engine_that_echoes_shows_nothing_of_it(
    bank_url: str, bank: Bank, capsys: pytest.CaptureFixture[str]
) -> None:
    """K11: what is sent of a sealed field is sealed, whoever reads along."""
    engine = create_async_engine(bank_url.replace("postgresql://", "postgresql+asyncpg://"), echo=True)
    async with install_capture(async_sessionmaker(engine))() as session:
        bank_bus(session).emit(Whispered("what", uuid4()))
        await session.commit()
    await engine.dispose()
    printed = capsys.readouterr()
    assert "INSERT INTO outbox_events" in printed.out
    assert SECRET not in printed.out + printed.err


async def test_who_writes_and_who_forgets_at_once_never_lose_what_was_told_after(bank: Bank) -> None:
    """At each moment at which a key is destroyed, whatever it seals has committed: nothing is sealed with it later."""
    ada = uuid4()
    destroyed: list[int] = []

    # Nobody forgets as often as this: then others' keys come and go between two looks, which is a conflict like any.
    @retry_on_conflict(attempts=100)
    async def tell_once(what: str) -> None:
        async with bank.session() as session:
            bank_bus(session).emit(Whispered(what, ada))
            await session.commit()

    async def tell(number: int) -> None:
        for count in range(20):
            await tell_once(f"{number}.{count}")

    async def forget_again() -> None:
        statement, _ = FORGET.in_schema(None)
        while not all(each.done() for each in telling):
            async with bank.engine.begin() as connection:
                if (await connection.exec_driver_sql(statement, (None, str(ada)))).all():
                    # Another snapshot than the one that found the key: all who had it have committed by now.
                    destroyed.append(await connection.scalar(SEALED_BY_DESTROYED) or 0)

    async with asyncio.TaskGroup() as group:
        telling = [group.create_task(tell(number)) for number in range(4)]
        group.create_task(forget_again())
    async with bank.engine.connect() as connection:
        assert await connection.scalar(SEALED_BY_DESTROYED) == destroyed[-1]
    assert len(destroyed) > 1
    told = await secrets_told(bank.engine)
    assert (len(told), told.count(None)) == (80, destroyed[-1])


SEALED_BY_DESTROYED = text("""
SELECT count(*) FROM outbox_events JOIN outbox_subject_keys AS key
  ON key.id = (payload -> '$sealed' -> 'secret' ->> 'key')::uuid WHERE key.forgotten_at IS NOT NULL
""")
