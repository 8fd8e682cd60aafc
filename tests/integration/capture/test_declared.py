"""C10, K2: aggregates that map themselves, in each style of SQLAlchemy's, with keys of every kind."""

from __future__ import annotations

import gc
from typing import Any
from uuid import uuid5

import pytest
from sqlalchemy import ForeignKey, Text, create_engine, select
from sqlalchemy.ext.asyncio import async_scoped_session
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, declarative_base, mapped_column, registry

from outbox_kernel import (
    AggregateRoot,
    MappedAggregate,
    aggregate,
    applies,
)
from outbox_kernel.errors import (
    AggregateHasNoId,
    ConcurrencyError,
    DefinitionError,
    MappingRefused,
    StaleAggregate,
)
from outbox_kernel.infrastructure.outbox.tables import outbox_events
from outbox_kernel.kernel.catalogue import aggregate_type_of, isolated_definitions
from outbox_kernel.kernel.identity import KEY_NAMESPACE
from outbox_kernel.testing import InMemoryStore, InMemoryUnitOfWork
from tests.bank import Bank
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
    placed,
    streams,
)

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
        assert [line.what for line in await session.scalars(order.found_lines.select())] == ["tea"]
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


def test_what_is_refused_on_a_deleted_aggregate_has_not_been_applied() -> None:
    """C3b, K3: after a rollback it may be added again, and would be stored without the event that changed it."""
    with isolated_definitions():

        class Own(DeclarativeBase):
            pass

        class Sourced(MappedAggregate, Own):
            __tablename__ = "sourced"
            id: Mapped[str] = mapped_column(primary_key=True)
            last: Mapped[str] = mapped_column(default="")

            @applies(Told)
            def apply(self, told: Told) -> None:
                self.last = told.what

        engine = create_engine("sqlite://")
        Own.metadata.create_all(engine)
        with Session(engine) as session:
            session.add(sourced := Sourced(id="x"))
            session.flush()
            session.delete(sourced)
            session.flush()
            with pytest.raises(StaleAggregate, match="deleted"):
                sourced.record(Told("too late"))
            assert sourced.last == ""
        engine.dispose()


@pytest.mark.parametrize("cls", [Car, Truck])
async def test_what_inherits_is_found_by_its_base_in_memory_too_once_it_is_put(
    cls: type[Car | Truck],
) -> None:
    """C10, K12: alone and in lists; in tables of its own and in its base's."""
    store, made, other = InMemoryStore(), cls(), Vehicle()
    store.put(made, other)
    async with InMemoryUnitOfWork(store) as uow:
        found = await uow.repository(Vehicle).get(made.id)
        assert type(found) is cls
        assert {each.id for each in await uow.repository(Vehicle).list()} == {made.id, other.id}
        assert list(await uow.repository(cls).list()) == [found]
        assert await uow.repository(cls).get(other.id) is None
    assert type(store.get(Vehicle, made.id)) is cls
    assert [each.id for each in store.all(cls)] == [made.id]


async def test_a_key_that_the_server_would_make_is_made_in_memory_too(shop: Bank) -> None:
    """C10, K12: a number or a UUID; a text is nobody's to make."""
    store = InMemoryStore()
    async with InMemoryUnitOfWork(store) as uow:
        made: list[Any] = [Counted(), Stamped(), Stamped()]
        for each in made:
            each.record(Told("made"))
            uow.repository(type(each)).add(each)
        await uow.commit()
    assert made[0].id == 1
    assert [each.aggregate_id for each in store.outbox[1:]] == [made[1].id, made[2].id]
    assert made[1].id != made[2].id
    with pytest.raises(AggregateHasNoId):
        store.put(Article())


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


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("between", [True, False])
def test_a_subclass_that_says_no_name_below_one_that_does_is_refused(joined: bool, between: bool) -> None:
    """C10, K1: its stream would break when its class is renamed; however far above it the name is said."""
    with isolated_definitions():

        class Own(DeclarativeBase):
            pass

        class Paying(MappedAggregate, Own):
            __tablename__ = "paying"
            __aggregate__ = "paying"
            __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "paying"}  # noqa: RUF012
            id: Mapped[int] = mapped_column(primary_key=True)
            kind: Mapped[str]

        base: Any = type("Between", (Paying,), {"__abstract__": True}) if between else Paying
        body: dict[str, Any] = {"__mapper_args__": {"polymorphic_identity": "card"}}
        if joined:
            key = mapped_column(ForeignKey("paying.id"), primary_key=True)
            body |= {"__tablename__": "paying_by_card", "id": key}
        with pytest.raises(
            MappingRefused,
            match=r"ByCard says no `__aggregate__`, though Paying above it does.*say `__aggregate__ = …` in ByCard too",
        ):
            type("ByCard", (base,), body)


def test_below_a_class_that_says_no_name_each_has_its_own() -> None:
    """K2: the default is the name of the class, all the way down."""
    with isolated_definitions():

        class Own(DeclarativeBase):
            pass

        class Floating(MappedAggregate, Own):
            __tablename__ = "floating"
            id: Mapped[int] = mapped_column(primary_key=True)

        class Sailing(Floating):
            pass

        assert [aggregate_type_of(each) for each in (Floating, Sailing)] == ["Floating", "Sailing"]


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
