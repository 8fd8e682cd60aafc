"""C10, K2: aggregates that map themselves, in each style of SQLAlchemy's, with keys of every kind."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid5

import pytest
from sqlalchemy import Text, select, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, declarative_base, mapped_column, registry

from outbox_kernel import (
    AggregateRoot,
    MappedAggregate,
    OutboxEventDispatcher,
    SqlAlchemyUnitOfWork,
    aggregate,
    applies,
    bus_of,
    session_factory,
)
from outbox_kernel.errors import (
    AggregateHasNoId,
    AggregateIdTaken,
    ConcurrencyError,
    DefinitionError,
    IdentityMoved,
    MappingRefused,
    StaleAggregate,
    UncommittedEvents,
)
from outbox_kernel.infrastructure.outbox.tables import outbox_events
from outbox_kernel.kernel.catalogue import aggregate_type_of, isolated_definitions
from outbox_kernel.kernel.identity import KEY_NAMESPACE
from tests.bank import Bank
from tests.domain import Wallet
from tests.market import (
    Article,
    Car,
    Counted,
    Hashed,
    Invoice,
    InvoiceNumber,
    Line,
    Order,
    Parcel,
    Renamed,
    Stamped,
    Tabled,
    Ticket,
    Told,
    Truck,
    Vehicle,
    market_in,
    streams,
)


@pytest.fixture
async def shop(bank: Bank) -> AsyncIterator[Bank]:
    async with market_in(bank):
        yield bank


async def placed(shop: Bank) -> int:
    """An order whose first event is stored; its key is returned."""
    async with shop.session() as session:
        session.add(order := Order())
        order.place()
        await session.commit()
        return order.id


# --- mapped as they are ----------------------------------------------------------------------------------

MAKERS: list[Any] = [
    (lambda: Order(id=7), "shop.order", "7"),
    (lambda: Article(id="tea/1"), "shop.article", "tea/1"),
    (lambda: Invoice(id=InvoiceNumber(7)), "shop.invoice", "7"),
    (lambda: Renamed(number=7), "Renamed", "7"),
    (lambda: Parcel(grams=1), "shop.parcel", "1"),
    (lambda: Hashed(grams=1), "Hashed", "1"),
    (lambda: Car(id=7, doors=2), "shop.car", "7"),
    (lambda: Truck(id=7, tons=2), "shop.truck", "7"),
    (lambda: Vehicle(id=7), "shop.vehicle", "7"),
    (lambda: Tabled(id=7, label="x"), "Tabled", "7"),
    (Counted, "Counted", "1"),
    (Ticket, "Ticket", None),
    (Stamped, "Stamped", None),
]


@pytest.mark.parametrize(("make", "name", "key"), MAKERS)
async def test_whatever_maps_itself_is_captured_like_any_other_aggregate(
    shop: Bank, make: Any, name: str, key: str | None
) -> None:
    """C10, C1, C2: added, loaded, recorded on alone, deleted; the key stands as written."""
    async with shop.session() as session:
        session.add(made := make())
        made.record(Told("first"))
        made.record(Told("second"))
        await session.commit()
        identity = made.id
    async with shop.session() as session:
        found = (await session.scalars(select(type(made)))).one()
        assert (found.id, found.version, found.revision) == (identity, 2, 1)
        found.record(Told("third"))
        await session.commit()
        assert (found.version, found.revision) == (3, 2)
        found.record(Told("gone"))
        await session.delete(found)
        del found
        gc.collect()
        await session.commit()
    told = ["first", "second", "third", "gone"]
    assert await streams(shop) == [(name, key, number, what) for number, what in enumerate(told, 1)]


async def test_the_uuid_of_a_key_is_derived_by_the_rule_and_a_uuid_stands_for_itself(shop: Bank) -> None:
    """C10: `aggregate_id` of the stored rows."""
    async with shop.session() as session:
        session.add_all([order := Order(), ticket := Ticket()])
        order.place()
        ticket.record(Told("opened"))
        await session.commit()
    async with shop.engine.connect() as connection:
        rows = (await connection.scalars(select(outbox_events.c.aggregate_id))).all()
    assert rows == [uuid5(KEY_NAMESPACE, str(order.id)), ticket.id]


@pytest.mark.parametrize("make", [each[0] for each in MAKERS])
async def test_a_rollback_leaves_nothing_of_it_and_a_record_on_what_is_stale_is_refused(
    shop: Bank, make: Any
) -> None:
    """C3, C10: as with every aggregate."""
    async with shop.session() as session:
        session.add(made := make())
        made.record(Told("first"))
        await session.commit()
        made.record(Told("never"))
        await session.flush()
        await session.rollback()
        with pytest.raises(StaleAggregate, match="load it again"):
            made.record(Told("too early"))
        await session.refresh(made)
        assert (made.version, made.recorded_events) == (1, ())
        made.record(Told("second"))
        await session.commit()
    assert [row[2:] for row in await streams(shop)] == [(1, "first"), (2, "second")]


async def test_what_a_mapper_computes_or_loads_later_works_as_it_did(shop: Bank) -> None:
    """C10: hybrids, column properties, defaults of the server, relationships, AsyncAttrs, typed queries."""
    async with shop.session() as session:
        session.add(order := Order(lines=[Line(what="tea")]))
        order.place()
        session.add(Article(id="a", title="green"))
        await session.commit()
        key = order.id
    async with shop.session() as session:
        order = (await session.scalars(select(Order).where(Order.is_open, Order.status == "placed"))).one()
        assert (order.id, order.is_open, order.made_at is not None) == (key, True, True)
        assert [line.what for line in await order.awaitable_attrs.lines] == ["tea"]
        assert (await session.get_one(Article, "a")).loud == "GREEN"


async def test_a_scoped_session_captures(shop: Bank) -> None:
    """C10, C9: `async_scoped_session` over a maker with capture."""
    session = async_scoped_session(shop.sessions, scopefunc=lambda: 1)
    session.add(order := Order())
    order.place()
    await session.commit()
    await session.remove()
    assert await streams(shop) == [("shop.order", str(order.id), 1, "placed")]


async def test_a_dataclass_is_an_aggregate_by_its_identity(shop: Bank) -> None:
    """C10: two with the same values are two."""
    async with shop.session() as session:
        session.add_all([one := Parcel(grams=5), other := Parcel(grams=5)])
        assert one == other
        one.record(Told("one"))
        other.record(Told("other"))
        await session.commit()
        other.grams = 6
        other.record(Told("heavier"))
        await session.rollback()
        await session.refresh(one)
        one.record(Told("again"))
        await session.commit()
    assert [row[1:] for row in await streams(shop)] == [("1", 1, "one"), ("2", 1, "other"), ("1", 2, "again")]


async def test_two_writers_of_a_declared_aggregate_are_told_apart_with_and_without_events(shop: Bank) -> None:
    """C4: by the mixin's `revision`."""
    key = await placed(shop)
    for change in (
        lambda order: order.record(Told("x")),
        lambda order: setattr(order, "cents", order.cents + 1),
    ):
        async with shop.session() as first, shop.session() as second:
            mine, theirs = await first.get_one(Order, key), await second.get_one(Order, key)
            change(theirs)
            await second.commit()
            mine.status = "lost"
            with pytest.raises(ConcurrencyError):
                await first.commit()


async def test_a_lock_that_the_application_has_is_kept(bank: Bank) -> None:
    """C10: its own `version_id_col` does what `revision` would."""
    with isolated_definitions():

        class Own(DeclarativeBase):
            pass

        class Locked(MappedAggregate, Own):
            __tablename__ = "locked"
            id: Mapped[int] = mapped_column(primary_key=True)
            counter: Mapped[int] = mapped_column()
            __mapper_args__ = {"version_id_col": counter}  # noqa: RUF012 - SQLAlchemy's way

        async with bank.engine.begin() as connection:
            await connection.run_sync(Own.metadata.create_all)
        async with bank.session() as session:
            session.add(locked := Locked())
            locked.record(Told("x"))
            await session.commit()
            locked.record(Told("y"))
            await session.commit()
            assert (locked.counter, locked.revision, locked.version) == (2, 1, 2)
        async with bank.engine.begin() as connection:
            await connection.run_sync(Own.metadata.drop_all)


def test_the_wire_name_is_said_in_the_class_or_is_the_class_own() -> None:
    """K2: and each class of a hierarchy has one."""
    names = [aggregate_type_of(cls) for cls in (Order, Counted, Vehicle, Car, Truck)]
    assert names == ["shop.order", "Counted", "shop.vehicle", "shop.car", "shop.truck"]


@pytest.mark.parametrize("order", ["first", "last"])
def test_the_mixin_may_stand_on_either_side_and_bases_may_be_of_the_old_kind(order: str) -> None:
    """C10: `declarative_base()`, too, and `registry.mapped`."""
    with isolated_definitions():
        old: Any = declarative_base()
        bases = (MappedAggregate, old) if order == "first" else (old, MappedAggregate)
        body = {"__tablename__": "sided", "id": mapped_column(Text, primary_key=True)}
        sided = type("Sided", bases, body)
        made = sided(id="x")
        made.record(Told("x"))
        assert (made.version, made.recorded_events[0].aggregate_key) == (1, "x")

        @registry().mapped
        class Plain(MappedAggregate):
            __tablename__ = "plain"
            id: Mapped[int] = mapped_column(primary_key=True)

        assert Plain(id=3).id == 3


def test_an_aggregate_that_maps_itself_may_live_by_its_events() -> None:
    """K3: `replay` makes it without a session."""
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
        again = Sourced.replay(made.recorded_events)
        assert (again.id, again.version) == ("x", 1)


# --- keys that the row makes -----------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [Order, Counted, Ticket, Stamped])
async def test_what_is_recorded_before_the_row_makes_the_key_is_stored_with_it_in_order(
    shop: Bank, cls: Any
) -> None:
    """K2, C10: numbered at record, written in the same flush, between all else that it writes."""
    async with shop.session() as session:
        one, other, wallet = cls(), cls(), Wallet.open("ada")
        bus = bus_of(session)
        one.record(Told("1"))
        bus.emit(Told("2"))
        other.record(Told("3"))
        wallet.note("4")
        one.record(Told("5"))
        assert [each.aggregate_version for each in one.recorded_events] == [1, 2]
        session.add_all([other, wallet, one])
        await session.flush()
        assert not bus.has_events
        assert {each.aggregate_id for each in one.recorded_events} == {one.recorded_events[0].aggregate_id}
        one.record(Told("6"))
        await session.commit()
    told = [(row[2], row[3]) for row in await streams(shop)]
    assert told == [(1, "ada"), (1, "1"), (None, "2"), (1, "3"), (2, "4"), (2, "5"), (3, "6")]


async def test_a_key_that_was_made_in_a_transaction_goes_with_it(shop: Bank) -> None:
    """C3b: what was inserted is new again, has all its events, and gets a key of its own."""
    async with shop.session() as session:
        session.add_all([order := Order(), counted := Counted()])
        order.place()
        counted.record(Told("counted"))
        await session.flush()
        await session.rollback()
        assert [each.aggregate_version for each in order.recorded_events] == [1]
        order.record(Told("after"))
        session.add_all([order, counted])
        await session.commit()
        assert await session.scalar(select(Order.id)) == order.id
        assert await session.scalar(select(Counted.id)) == counted.id
    expected = [
        ("shop.order", str(order.id), 1, "placed"),
        ("Counted", str(counted.id), 1, "counted"),
        ("shop.order", str(order.id), 2, "after"),
    ]
    assert await streams(shop) == expected


async def test_a_savepoint_that_is_rolled_back_takes_the_key_along(shop: Bank) -> None:
    """C3b."""
    async with shop.session() as session:
        counted = Counted()
        counted.record(Told("counted"))
        savepoint = await session.begin_nested()
        session.add(counted)
        await session.flush()
        await savepoint.rollback()
        session.add(counted)
        await session.commit()
    assert await streams(shop) == [("Counted", str(counted.id), 1, "counted")]


async def test_an_event_that_a_listener_records_on_a_row_without_a_key_is_stored(shop: Bank) -> None:
    """C2: recorded in a flush, after capture has looked."""
    from sqlalchemy import event as sqlalchemy_event

    async with shop.session() as session:
        session.add(order := Order())

        @sqlalchemy_event.listens_for(session.sync_session, "before_flush", once=True)
        def late(*_: object) -> None:
            order.place()

        await session.commit()
    assert await streams(shop) == [("shop.order", str(order.id), 1, "placed")]


@pytest.mark.parametrize("cls", [Order, Counted, Ticket])
async def test_another_driver_makes_keys_as_well(shop: Bank, cls: Any) -> None:
    """C9, C10: psycopg."""
    engine = create_async_engine(shop.engine.url.set(drivername="postgresql+psycopg"))
    maker = session_factory(engine)
    async with maker() as session:
        made = [cls() for _ in range(3)]
        for number, each in enumerate(made):
            each.record(Told(str(number)))
        session.add_all(made)
        await session.commit()
    await engine.dispose()
    key = {"Ticket": lambda _: None}.get(cls.__name__, str)
    found = [(row[1], row[2], row[3]) for row in await streams(shop)]
    assert found == [(key(each.id), 1, str(number)) for number, each in enumerate(made)]


@pytest.mark.parametrize(
    ("make", "name", "other"),
    [
        (lambda: Order(id=7), "id", 8),
        (lambda: Invoice(id=InvoiceNumber(7)), "id", InvoiceNumber(8)),
        (lambda: Renamed(number=7), "number", 8),
        (lambda: Renamed(number=7), "id", 8),
    ],
)
async def test_a_stored_id_is_not_changed_whatever_it_is_made_of(
    shop: Bank, make: Any, name: str, other: object
) -> None:
    """C3: its stream would begin anew, or in the middle."""
    async with shop.session() as session:
        session.add(made := make())
        made.record(Told("first"))
        await session.commit()
        with pytest.raises(IdentityMoved, match="is stored, and its id cannot become"):
            setattr(made, name, other)
        made.record(Told("second"))
        await session.commit()
    assert [row[1:] for row in await streams(shop)] == [("7", 1, "first"), ("7", 2, "second")]


async def test_a_key_that_is_given_after_the_record_is_the_events_own(shop: Bank) -> None:
    """K2: before the flush, whoever makes it."""
    async with shop.session() as session:
        order = Order()
        order.place()
        order.id = 99
        session.add(order)
        await session.commit()
    assert await streams(shop) == [("shop.order", "99", 1, "placed")]


async def test_an_id_that_is_in_use_is_told(shop: Bank) -> None:
    """C4."""
    key = await placed(shop)
    async with shop.session() as session:
        session.add(order := Order(id=key))
        order.place()
        with pytest.raises(AggregateIdTaken):
            await session.commit()


async def test_what_is_not_committed_is_not_expunged_though_it_has_no_key_yet(shop: Bank) -> None:
    """C3."""
    async with shop.session() as session:
        session.add(order := Order())
        order.place()
        with pytest.raises(UncommittedEvents):
            session.expunge(order)


async def test_a_session_without_capture_flushes_before_such_an_aggregate_records(shop: Bank) -> None:
    """K6, K2: an event without its aggregate's key would be nobody's, and is refused."""
    async with AsyncSession(shop.engine, expire_on_commit=False) as session:
        early = Order()
        early.place()
        with pytest.raises(AggregateHasNoId, match="flush the aggregate before it records"):
            await OutboxEventDispatcher(session).dispatch(early.collect_events())
        session.add(order := Order())
        await session.flush()
        order.place()
        await OutboxEventDispatcher(session).dispatch(order.collect_events())
        await session.commit()
    assert await streams(shop) == [("shop.order", str(order.id), 1, "placed")]


async def test_the_unit_of_work_finds_an_aggregate_by_its_key(shop: Bank) -> None:
    """C10: `repository(Order).get(1)`."""
    async with SqlAlchemyUnitOfWork(shop.sessions) as uow:
        order = Order()
        order.place()
        uow.repository(Order).add(order)
        await uow.commit()
        found = await uow.repository(Order).get(order.id)
        assert found is order
        uow.emit(Told("emitted"), aggregate_type=Order, aggregate_id=order.id)
        await uow.commit()
    assert await streams(shop) == [
        ("shop.order", str(order.id), 1, "placed"),
        ("shop.order", str(order.id), None, "emitted"),
    ]
    async with shop.engine.connect() as connection:
        ids = (await connection.scalars(text("SELECT DISTINCT aggregate_id FROM outbox_events"))).all()
    assert ids == [uuid5(KEY_NAMESPACE, str(order.id))]
    assert isinstance(ids[0], UUID)


# --- what is refused -------------------------------------------------------------------------------------


def test_the_decorator_is_for_classes_that_do_not_map_themselves() -> None:
    """K2: attrs and the mapper would both make the attributes."""
    with isolated_definitions():

        class Own(DeclarativeBase):
            pass

        class Twice(MappedAggregate, Own):
            __tablename__ = "twice"
            id: Mapped[int] = mapped_column(primary_key=True)

        with pytest.raises(DefinitionError, match=r"Twice maps itself.*leave it out.*__aggregate__ ="):
            aggregate("twice")(Twice)


def test_an_aggregate_without_an_id_is_refused_with_the_way_to_say_it() -> None:
    """C10: a primary key may have another name."""
    with isolated_definitions():

        class Own(DeclarativeBase):
            pass

        with pytest.raises(
            MappingRefused, match=r"Nameless is an aggregate without the attribute `id`.*synonym"
        ):

            class Nameless(MappedAggregate, Own):
                __tablename__ = "nameless"
                number: Mapped[int] = mapped_column(primary_key=True)


def test_a_table_of_ones_own_without_the_columns_is_refused_with_the_statement() -> None:
    """C6: that adds them."""
    from sqlalchemy import Column, Integer, Table

    with isolated_definitions():

        class Own(DeclarativeBase):
            pass

        with pytest.raises(
            MappingRefused, match="ALTER TABLE bare ADD COLUMN version bigint NOT NULL DEFAULT 0"
        ):

            class Bare(MappedAggregate, Own):
                __table__ = Table("bare", Own.metadata, Column("id", Integer, primary_key=True))


async def test_an_id_of_another_kind_than_the_column_records_nothing(shop: Bank) -> None:
    """K2."""
    wrong: Any = Order(id="seven")
    with pytest.raises(AggregateHasNoId, match="Order has the id 'seven'"):
        wrong.place()


def test_an_aggregate_that_maps_itself_is_an_aggregate_root() -> None:
    """K2: whatever takes one takes it."""
    assert issubclass(Order, AggregateRoot)
