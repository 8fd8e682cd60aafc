"""C6: an existing application adopts capture on its own sessions with one call."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest
from sqlalchemy import (
    Column,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    Uuid,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy import create_engine as create_sync_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    column_property,
    composite,
    configure_mappers,
    mapped_column,
    registry,
    relationship,
    sessionmaker,
)

from outbox_kernel.errors import DefinitionError, KernelError, StaleAggregate
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork, create_engine, session_factory
from outbox_kernel.infrastructure.errors import BadSetting, CannotCapture, SchemaNotMigrated
from outbox_kernel.infrastructure.outbox import (
    MappingRefused,
    aggregate_columns,
    bus_of,
    install_capture,
    map_aggregate,
)
from outbox_kernel.infrastructure.outbox.tables import outbox_events_in
from outbox_kernel.kernel import AggregateRoot, aggregate
from outbox_kernel.kernel.catalogue import isolated_definitions
from tests.bank import Bank
from tests.domain import Announced, Noted, Wallet, bank_metadata

ROOT = Path(__file__).parents[3]


async def assert_captures(bank: Bank, session: AsyncSession) -> None:
    """What this session commits has its events, each once."""
    async with session:
        wallet = Wallet.open("adopted")
        session.add(wallet)
        bus_of(session).emit(Announced("adopted"))
        await session.commit()
    assert await bank.outbox() == ["1 adopted", "- adopted"]


@pytest.mark.servers
async def test_an_async_sessionmaker_is_adopted_and_returned(bank: Bank) -> None:
    """C6: with one call; sessions of other makers stay as they are."""
    maker = async_sessionmaker(bank.engine)
    assert install_capture(maker) is maker
    await assert_captures(bank, maker())
    other = async_sessionmaker(bank.engine)().sync_session
    assert (hasattr(other, "outbox"), hasattr(maker().sync_session, "outbox")) == (False, True)


async def test_a_sync_sessionmaker_is_adopted(bank: Bank) -> None:
    """C6: for code inside `run_sync`; the driver is asyncpg all the same."""
    maker = install_capture(sessionmaker())

    def work(connection: Any) -> None:
        with maker(bind=connection) as session:
            session.add(Wallet.open("sync"))
            session.commit()

    async with bank.engine.connect() as connection:
        await connection.run_sync(work)
        await connection.commit()
    assert await bank.outbox() == ["1 sync"]


async def test_a_session_class_of_ones_own_is_adopted_in_place(bank: Bank) -> None:
    """C6: whoever calls the class gets a capturing session, with what the class adds."""

    class OwnSession(Session):
        def add(self, instance: object, *, _warn: bool = True) -> None:
            added.append(instance)
            super().add(instance)

    added: list[object] = []
    assert install_capture(OwnSession) is OwnSession
    await assert_captures(bank, AsyncSession(bank.engine, sync_session_class=OwnSession))
    assert added


async def test_an_async_session_class_of_ones_own_is_adopted(bank: Bank) -> None:
    """C6: and the library's class stays as it is."""

    class OwnAsyncSession(AsyncSession):
        pass

    assert install_capture(OwnAsyncSession) is OwnAsyncSession
    await assert_captures(bank, OwnAsyncSession(bank.engine))
    assert AsyncSession.sync_session_class is Session


async def test_a_maker_keeps_the_sync_session_class_that_it_was_given(bank: Bank) -> None:
    """C6: capture comes on top of it, and only in this maker's sessions."""

    class OwnSession(Session):
        tenant = "blue"

    maker = install_capture(async_sessionmaker(bank.engine, sync_session_class=OwnSession))
    session = maker()
    assert isinstance(session.sync_session, OwnSession)
    assert session.sync_session.tenant == "blue"
    await assert_captures(bank, session)
    assert not hasattr(OwnSession, "outbox")


async def test_a_maker_of_an_own_async_session_class_leaves_the_class_as_it_is(bank: Bank) -> None:
    """C6: one call, one target."""

    class OwnAsyncSession(AsyncSession):
        pass

    maker = install_capture(async_sessionmaker(bank.engine, class_=OwnAsyncSession))
    session = maker()
    assert isinstance(session, OwnAsyncSession)
    await assert_captures(bank, session)
    assert OwnAsyncSession.sync_session_class is Session


async def test_installing_twice_writes_once(bank: Bank) -> None:
    """C6: on the maker, and on the class that it makes."""

    class OwnSession(Session):
        pass

    install_capture(OwnSession)
    maker = async_sessionmaker(bank.engine, sync_session_class=OwnSession)
    install_capture(install_capture(maker))
    install_capture(OwnSession)
    await assert_captures(bank, maker())


def test_a_class_whose_maker_captures_already_is_refused() -> None:
    """C6: Python cannot put capture under what it lies upon."""

    class OwnSession(Session):
        pass

    install_capture(sessionmaker(class_=OwnSession))
    with pytest.raises(CannotCapture, match=r"a maker of OwnSession captures already.*on the class first"):
        install_capture(OwnSession)
    assert OwnSession.__bases__ == (Session,)


@pytest.mark.parametrize("target", [Session, AsyncSession, object(), int, "sessions", None])
def test_what_makes_no_sessions_of_its_own_is_refused(target: Any) -> None:
    """C6: SQLAlchemy's own classes serve the whole process."""
    with pytest.raises(
        CannotCapture, match=r"takes a sessionmaker or your own subclass of Session or AsyncSession"
    ):
        install_capture(target)


def test_an_engine_of_another_driver_is_refused_by_name_as_capture_is_installed() -> None:
    """C9: it would fail at the first commit."""
    with pytest.raises(
        CannotCapture, match=r"this session uses pysqlite; create its engine from a postgresql\+asyncpg"
    ):
        install_capture(sessionmaker(create_sync_engine("sqlite://")))


def test_an_engine_of_another_driver_that_shows_later_is_refused_at_the_first_flush() -> None:
    """C9: whether it has events or not."""
    maker = install_capture(sessionmaker())
    silent = Wallet(uuid4())
    for wallet in (Wallet.open(), silent):
        with maker(bind=create_sync_engine("sqlite://")) as session:
            session.add(wallet)
            with pytest.raises(CannotCapture, match="this session uses pysqlite"):
                session.flush()


# --- the schema ---------------------------------------------------------------------------------------


@pytest.fixture
async def other_schema(bank: Bank) -> AsyncIterator[str]:
    async with bank.engine.begin() as connection:
        await connection.execute(text("CREATE SCHEMA ledger"))
        await connection.run_sync(outbox_events_in("ledger").create, checkfirst=True)
    yield "ledger"
    async with bank.engine.begin() as connection:
        await connection.execute(text("DROP SCHEMA ledger CASCADE"))


async def stored_in(bank: Bank, schema: str) -> list[str]:
    table = outbox_events_in(schema)
    async with bank.engine.connect() as connection:
        return list(await connection.scalars(select(table.c.event_type).order_by(table.c.position)))


@pytest.mark.parametrize("by", ["environment", "argument"])
async def test_events_go_into_the_schema_that_is_set(
    bank: Bank, other_schema: str, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """C6: OUTBOX_SCHEMA of the environment, or the argument, which is stronger."""
    monkeypatch.setenv("OUTBOX_SCHEMA", other_schema if by == "environment" else "elsewhere")
    argument = None if by == "environment" else other_schema
    maker = install_capture(async_sessionmaker(bank.engine), schema=argument)
    async with maker() as session:
        session.add(Wallet.open())
        await session.commit()
    assert await stored_in(bank, other_schema) == ["bank.opened"]
    assert await bank.outbox() == []


def test_a_second_schema_for_the_same_sessions_is_refused() -> None:
    """C6: an event has one outbox."""
    maker = install_capture(async_sessionmaker(), schema="one")
    with pytest.raises(CannotCapture, match="captures into schema 'one' already"):
        install_capture(maker, schema="two")


def test_a_schema_that_cannot_be_a_name_is_refused() -> None:
    """C6: it would be written into statements."""
    with pytest.raises(BadSetting, match="OUTBOX_SCHEMA"):
        install_capture(async_sessionmaker(), schema='a"; DROP TABLE b')


@pytest.mark.parametrize("by", ["a plain session", "the unit of work", "the bus"])
@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        (
            None,
            "or set OUTBOX_SCHEMA if its tables are in a schema off the search path, or without USAGE for this user",
        ),
        ("elsewhere", "or correct OUTBOX_SCHEMA if its tables are not to be in elsewhere"),
    ],
)
async def test_a_missing_outbox_is_the_same_sentence_for_whoever_commits(
    empty_postgres_url: str, by: str, schema: str | None, hint: str
) -> None:
    """C6: with what to run, and where it looked."""
    engine = create_engine(empty_postgres_url)
    async with engine.begin() as connection:
        await connection.run_sync(bank_metadata.create_all)
    sessions = session_factory(engine, schema=schema)
    with pytest.raises(SchemaNotMigrated, match=rf"is not migrated .*: run `outbox migrate`, {hint}$"):
        if by == "the unit of work":
            async with SqlAlchemyUnitOfWork(sessions) as uow:
                uow.repository(Wallet).add(Wallet.open())
                await uow.commit()
        else:
            async with sessions.begin() as session:
                if by == "the bus":
                    bus_of(session).emit(Announced("lost"))
                else:
                    session.add(Wallet.open())
    await engine.dispose()


async def test_what_fails_in_the_applications_own_tables_is_its_own_error(bank: Bank) -> None:
    """C6: a session with capture raises for them what SQLAlchemy's does."""
    async with bank.session() as session:
        with pytest.raises(DBAPIError, match="does not exist"):
            await session.execute(text("SELECT * FROM nowhere"))


UNCAPTURED = """
import asyncio, sys
from sqlalchemy.ext.asyncio import AsyncSession
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.outbox import OutboxEventDispatcher
from tests.domain import Announced

async def main():
    engine = create_engine(sys.argv[1])
    async with AsyncSession(engine) as session:
        await OutboxEventDispatcher(session).dispatch([Announced("by hand")])
        await session.commit()
    await engine.dispose()

asyncio.run(main())
"""


async def test_events_dispatched_without_capture_go_into_the_schema_of_the_environment(
    bank: Bank, bank_url: str, other_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C6: in a process of its own, since a process maps OutboxRecord once."""
    monkeypatch.setenv("OUTBOX_SCHEMA", other_schema)
    subprocess.run(  # noqa: ASYNC221 - nothing else runs in this loop
        [sys.executable, "-c", UNCAPTURED, bank_url], cwd=ROOT, check=True
    )
    assert await stored_in(bank, other_schema) == ["bank.announced"]
    assert await bank.outbox() == []


# --- the mapping --------------------------------------------------------------------------------------


@attrs.frozen
class ParcelId:
    value: UUID


class ParcelIdType(TypeDecorator[ParcelId]):
    """How an application stores a value object as its one value."""

    impl = Uuid
    cache_ok = True

    def process_bind_param(self, value: ParcelId | None, dialect: object) -> UUID | None:
        return None if value is None else value.value

    def process_result_value(self, value: UUID | None, dialect: object) -> ParcelId | None:
        return None if value is None else ParcelId(value)


@pytest.fixture
def own() -> Iterator[registry]:
    """An application's registry, forgotten afterwards together with what is defined meanwhile."""
    mapped = registry(metadata=MetaData())
    with isolated_definitions():
        yield mapped
    mapped.dispose()


async def create(bank: Bank, own: registry) -> None:
    async with bank.engine.begin() as connection:
        await connection.run_sync(own.metadata.create_all)


async def drop(bank: Bank, own: registry) -> None:
    async with bank.engine.begin() as connection:
        await connection.run_sync(own.metadata.drop_all)


async def test_an_id_may_be_a_value_object(bank: Bank, own: registry) -> None:
    """K2: the outbox has its UUID."""

    @aggregate("test.parcel")
    class Parcel(AggregateRoot):
        id: ParcelId

    map_aggregate(
        own,
        Parcel,
        Table("parcels", own.metadata, Column("id", ParcelIdType, primary_key=True), *aggregate_columns()),
    )
    await create(bank, own)
    parcel_id = ParcelId(uuid4())
    async with bank.session() as session:
        parcel = Parcel(parcel_id)
        parcel.record(Noted("packed"))
        session.add(parcel)
        await session.commit()
        session.expunge_all()
        (await session.get_one(Parcel, parcel_id)).record(Noted("sent"))
        await session.commit()
    assert await bank.stream(parcel_id.value) == ["1 packed", "2 sent"]
    await drop(bank, own)


async def test_an_aggregate_that_is_mapped_anew_is_captured_like_the_first_time(
    bank: Bank, own: registry
) -> None:
    """C3, C6: as test suites do between their cases."""
    install_capture(async_sessionmaker(bank.engine))

    @aggregate("test.barrel")
    class Barrel(AggregateRoot):
        id: UUID

    table = Table("barrels", own.metadata, Column("id", Uuid, primary_key=True), *aggregate_columns())
    await create(bank, own)
    for mapped in (own, registry(metadata=own.metadata)):
        map_aggregate(mapped, Barrel, table)
        barrel = Barrel(uuid4())
        async with bank.session() as session:
            session.add(barrel)
            await session.commit()
            await session.delete(barrel)
            await session.flush()
            with pytest.raises(StaleAggregate):
                barrel.record(Noted("lost"))
            await session.rollback()
            with pytest.raises(StaleAggregate):
                _ = barrel.id
        mapped.dispose()
    await drop(bank, own)


async def test_an_aggregate_that_is_mapped_after_the_call_is_captured_as_well(
    bank: Bank, own: registry
) -> None:
    """C6: and is as honest about a stale state as the others."""
    install_capture(async_sessionmaker(bank.engine))

    @aggregate("test.crate")
    class Crate(AggregateRoot):
        id: UUID

    map_aggregate(
        own, Crate, Table("crates", own.metadata, Column("id", Uuid, primary_key=True), *aggregate_columns())
    )
    await create(bank, own)
    crate_id = uuid4()
    crate = Crate(crate_id)
    async with bank.session() as session:
        session.add(crate)
        crate.record(Noted("packed"))
        await session.commit()
        await session.rollback()
        session.expire(crate)
        with pytest.raises(StaleAggregate):
            crate.record(Noted("sent"))
    assert await bank.stream(crate_id) == ["1 packed"]
    await drop(bank, own)


async def test_a_missing_column_is_refused_with_the_statement_that_adds_it_and_the_statement_serves(
    bank: Bank, own: registry
) -> None:
    """C6: first `version`, then the lock; then capture works, on the rows that were there as well."""

    @aggregate("test.box")
    class Box(AggregateRoot):
        id: UUID
        label: str = ""

    box_id = uuid4()
    async with bank.engine.begin() as connection:
        await connection.execute(text("CREATE TABLE boxes (id uuid PRIMARY KEY, label text NOT NULL)"))
        await connection.execute(text("INSERT INTO boxes VALUES (:id, 'old')"), {"id": box_id})

    columns: list[Any] = [Column("id", Uuid, primary_key=True), Column("label", Text)]
    for added in aggregate_columns():
        with pytest.raises(MappingRefused) as refused:
            mapped_with(Box, columns)
        statement = str(refused.value).split("`")[-2]
        assert statement.startswith(f"ALTER TABLE boxes ADD COLUMN {added.name} ")
        async with bank.engine.begin() as connection:
            await connection.execute(text(statement))
        columns = [*columns, added]

    boxes = mapped_with(Box, columns)
    async with bank.session() as session:
        box = await session.get_one(Box, box_id)
        assert (box.label, box.version) == ("old", 0)
        box.record(Noted("adopted"))
        session.add(fresh := Box(uuid4(), "new"))
        fresh.record(Noted("new"))
        await session.commit()
    assert await bank.outbox() == ["1 adopted", "1 new"]
    boxes.dispose()
    async with bank.engine.begin() as connection:
        await connection.execute(text("DROP TABLE boxes"))


def mapped_with(cls: type[Any], columns: list[Any]) -> registry:
    """Map the class with these columns alone, or take the mapping back."""
    attempt = registry(metadata=MetaData())
    table = Table("boxes", attempt.metadata, *(column._copy() for column in columns))  # noqa: SLF001 - a column serves one table
    try:
        lock = {"version_id_col": table.c.revision} if "revision" in table.c else {}
        attempt.map_imperatively(cls, table, **lock)
        configure_mappers()
    except MappingRefused:
        attempt.dispose()
        raise
    return attempt


async def test_a_unit_of_work_refuses_sessions_that_would_lose_events(bank: Bank) -> None:
    """C6: it says so on entering, before anything is stored without its events."""
    uow = SqlAlchemyUnitOfWork(async_sessionmaker(bank.engine))
    with pytest.raises(KernelError, match="do not capture events; make them with session_factory"):
        async with uow:
            pass


@pytest.mark.parametrize("present", [0, 1])
def test_the_mapping_helper_refuses_a_table_without_the_columns(present: int) -> None:
    """C6: with the statement that adds the missing one."""
    columns = aggregate_columns()
    table = Table("bare", MetaData(), Column("id", Uuid, primary_key=True), *columns[:present])
    with pytest.raises(MappingRefused, match=f"ALTER TABLE bare ADD COLUMN {columns[present].name} "):
        map_aggregate(registry(), Wallet, table)


def test_a_class_without_the_decorator_is_refused_before_it_is_mapped(own: registry) -> None:
    """C6: its events would have no wire name, and its fields no constructor."""

    class Undecorated(AggregateRoot):
        id: UUID

    with pytest.raises(
        DefinitionError, match=r"Undecorated is no registered aggregate; put @aggregate on it"
    ):
        map_aggregate(own, Undecorated, bare_table(own))
    assert inspect(Undecorated, raiseerr=False) is None


def bare_table(own: registry, *columns: Column[Any]) -> Table:
    """A table that every aggregate without further fields fits."""
    return Table("bare", own.metadata, Column("id", Uuid, primary_key=True), *aggregate_columns(), *columns)


@pytest.mark.parametrize("helped", [True, False])
def test_a_field_that_no_column_stores_is_refused_by_name(own: registry, helped: bool) -> None:
    """C6: after the first load it would read as stale, whatever its default; by our helper and by SQLAlchemy's."""

    @aggregate("test.labelled")
    class Labelled(AggregateRoot):
        id: UUID
        labels: list[str] = attrs.field(factory=list, init=False)

    table = bare_table(own)
    with pytest.raises(
        MappingRefused, match=r"Labelled has the field 'labels'.*give bare a column 'labels', or"
    ):
        if helped:
            map_aggregate(own, Labelled, table)
        else:
            own.map_imperatively(Labelled, table, version_id_col=table.c.revision)
            configure_mappers()


@attrs.frozen
class Money:
    """A value object of two columns."""

    cents: int
    currency: str
    __composite_values__ = attrs.astuple


async def test_fields_may_be_stored_by_any_property_of_the_mapper(bank: Bank, own: registry) -> None:
    """C6: a composite, a column of another name, an SQL expression; and what is no state is no field."""

    @aggregate("test.priced")
    class Priced(AggregateRoot):
        id: UUID
        title: str
        price: Money
        shout: str = ""

        @cached_property
        def words(self) -> list[str]:
            return self.title.split()

    columns: list[Column[Any]] = [Column("name", Text), Column("cents", Integer), Column("currency", Text)]
    table = bare_table(own, *columns)
    properties = {
        "title": table.c.name,
        "price": composite(Money, table.c.cents, table.c.currency),
        "shout": column_property(func.upper(table.c.name)),
    }
    map_aggregate(own, Priced, table, properties=properties)
    await create(bank, own)
    async with bank.session() as session:
        session.add(priced := Priced(uuid4(), "green tea", Money(250, "EUR")))
        await session.commit()
    async with bank.session() as session:
        found = await session.get_one(Priced, priced.id)
        assert (found.price, found.shout, found.words) == (Money(250, "EUR"), "GREEN TEA", ["green", "tea"])
        found.record(Noted("priced"))
        await session.commit()
    assert await bank.stream(priced.id) == ["1 priced"]
    await drop(bank, own)


# --- beside declarative models --------------------------------------------------------------------------

DECLARED = (
    "Declared is mapped declaratively; derive it from MappedAggregate instead of AggregateRoot, and leave"
)


def test_an_attrs_aggregate_on_a_declarative_base_is_refused() -> None:
    """C6: with the way that serves, before attrs and the mapper fight over the class."""

    class Base(DeclarativeBase):
        pass

    with pytest.raises(MappingRefused, match=DECLARED):

        @aggregate("test.declared")
        class Declared(AggregateRoot, Base):
            __tablename__ = "declared"
            id: Mapped[UUID] = mapped_column(primary_key=True)


def test_a_declaratively_mapped_attrs_class_is_refused(own: registry) -> None:
    """C6: SQLAlchemy itself takes it, with a table and unmapped annotations allowed."""
    with isolated_definitions(), pytest.raises(MappingRefused, match=DECLARED):

        @own.mapped
        @aggregate("test.declared")
        class Declared(AggregateRoot):
            __allow_unmapped__ = True
            __table__ = bare_table(own)
            id: UUID


async def test_a_declarative_model_and_an_aggregate_of_one_registry_may_know_each_other(
    bank: Bank, own: registry
) -> None:
    """C6: the application's other tables stay declarative, relationships to aggregates and from them included."""

    class Base(DeclarativeBase):
        registry = own

    @aggregate("test.order")
    class Order(AggregateRoot):
        id: UUID
        remarks: list[Any] = attrs.Factory(list)

    orders = Table("orders", own.metadata, Column("id", Uuid, primary_key=True), *aggregate_columns())

    class Remark(Base):
        __tablename__ = "remarks"
        id: Mapped[int] = mapped_column(primary_key=True)
        text: Mapped[str]
        order_id: Mapped[UUID] = mapped_column(ForeignKey("orders.id"))
        order: Mapped[Any] = relationship(Order, back_populates="remarks")

    remarks: Any = relationship(Remark, back_populates="order", lazy="selectin")
    map_aggregate(own, Order, orders, properties={"remarks": remarks})
    await create(bank, own)
    async with bank.session() as session:
        order = Order(uuid4())
        session.add(Remark(text="first", order=order))
        order.record(Noted("ordered"))
        await session.commit()
    async with bank.session() as session:
        order = await session.get_one(Order, order.id)
        assert order.remarks[0].order is order
        order.remarks.append(Remark(text="second"))
        order.record(Noted("remarked"))
        await session.commit()
    async with bank.session() as session:
        order = await session.get_one(Order, order.id)
        assert [remark.text for remark in order.remarks] == ["first", "second"]
    assert await bank.stream(order.id) == ["1 ordered", "2 remarked"]
    await drop(bank, own)
