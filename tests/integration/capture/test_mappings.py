"""C6: aggregates that share a table, inherit one, have a key of several columns, or lie in several databases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest
from sqlalchemy import Column, ForeignKey, Integer, MetaData, Table, Text, TypeDecorator, Uuid, select
from sqlalchemy.exc import NoInspectionAvailable
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import composite, registry
from sqlalchemy.orm.exc import UnmappedInstanceError
from sqlalchemy.types import UserDefinedType

from outbox_kernel.errors import AggregateIdTaken, ConcurrencyError, KernelError, StaleAggregate
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from outbox_kernel.infrastructure.outbox import (
    MappingRefused,
    aggregate_columns,
    bus_of,
    install_capture,
    map_aggregate,
)
from outbox_kernel.kernel import AggregateRoot, aggregate
from tests.bank import Bank, engine_of, fresh_bank
from tests.domain import Announced, Noted, Wallet
from tests.servers import Server


@aggregate("test.vehicle")
class Vehicle(AggregateRoot):
    id: UUID
    kind: str = "vehicle"


@aggregate("test.car")
class Car(Vehicle):
    kind: str = "car"
    doors: int = 4


@aggregate("test.truck")
class Truck(Vehicle):
    kind: str = "truck"
    tons: int = 7


@aggregate("test.tenanted")
class Tenanted(AggregateRoot):
    id: UUID
    tenant: str


@attrs.define(slots=False)
class Part:
    """Compared by value, as attrs has it unless told otherwise, so it cannot be hashed."""

    id: UUID
    vehicle_id: UUID
    name: str


rough_metadata = MetaData()
rough_registry = registry(metadata=rough_metadata)
vehicles = Table(
    "rough_vehicles",
    rough_metadata,
    Column("id", Uuid, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("tons", Integer),
    *aggregate_columns(),
)
cars = Table(
    "rough_cars",
    rough_metadata,
    Column("id", Uuid, ForeignKey("rough_vehicles.id"), primary_key=True),
    Column("doors", Integer),
)
parts = Table(
    "rough_parts",
    rough_metadata,
    Column("id", Uuid, primary_key=True),
    Column("vehicle_id", ForeignKey("rough_vehicles.id"), nullable=False),
    Column("name", Text, nullable=False),
)
tenanted = Table(
    "rough_tenanted",
    rough_metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant", Text, primary_key=True),
    *aggregate_columns(),
)
map_aggregate(
    rough_registry,
    Vehicle,
    vehicles,
    polymorphic_on=vehicles.c.kind,
    polymorphic_identity="vehicle",
    exclude_properties=["tons"],
)
map_aggregate(
    rough_registry, Car, cars, inherits=Vehicle, polymorphic_identity="car", polymorphic_load="selectin"
)
map_aggregate(
    rough_registry,
    Truck,
    None,
    inherits=Vehicle,
    polymorphic_identity="truck",
    polymorphic_load="inline",
    properties={"tons": vehicles.c.tons},
)
map_aggregate(rough_registry, Tenanted, tenanted)
rough_registry.map_imperatively(Part, parts)


@pytest.fixture
async def rough(bank: Bank) -> AsyncIterator[Bank]:
    async with bank.engine.begin() as connection:
        await connection.run_sync(rough_metadata.create_all)
    yield bank
    async with bank.engine.begin() as connection:
        await connection.run_sync(rough_metadata.drop_all)


@pytest.mark.parametrize("cls", [Car, Truck])
async def test_an_aggregate_that_inherits_its_mapping_is_captured_like_any_other(
    rough: Bank, cls: type[Vehicle]
) -> None:
    """C2, C3: joined tables and one table; an event alone, a load as the base, a rollback, a deletion."""
    async with rough.session() as session:
        vehicle = cls(uuid4())
        session.add(vehicle)
        vehicle.record(Noted("built"))
        await session.flush()
        await session.rollback()
        session.add(vehicle)
        await session.commit()
        vehicle.record(Noted("seen"))
        await session.commit()
    async with rough.session() as session:
        found = (await session.scalars(select(Vehicle))).one()
        found.record(Noted("given up"))
        await session.rollback()
        with pytest.raises(StaleAggregate):
            found.record(Noted("too early"))
        await session.refresh(found)
        found.record(Noted("scrapped"))
        await session.delete(found)
        await session.commit()
    assert await rough.stream(vehicle.id) == ["1 built", "2 seen", "3 scrapped"]


async def test_what_cannot_be_hashed_is_rolled_back_like_anything_else(rough: Bank) -> None:
    """C3: and can be added again."""
    async with rough.session() as session:
        car = Car(uuid4())
        part = Part(uuid4(), car.id, "wheel")
        session.add(car)
        await session.flush()
        session.add(part)
        await session.flush()
        await session.rollback()
        session.add(car)
        await session.flush()
        session.add(part)
        await session.commit()
        assert (await session.scalars(select(parts.c.name))).all() == ["wheel"]


async def test_a_change_in_the_subclass_own_table_is_seen_by_the_lock(rough: Bank) -> None:
    """C4: the row of the base has it."""
    async with rough.session() as session:
        session.add(car := Car(uuid4()))
        await session.commit()
    async with rough.session() as first, rough.session() as second:
        mine, theirs = await first.get_one(Car, car.id), await second.get_one(Car, car.id)
        theirs.doors = 2
        await second.commit()
        mine.doors = 3
        with pytest.raises(ConcurrencyError):
            await first.commit()


def test_a_mapping_without_a_table_says_whose_it_shares() -> None:
    """C6: one table needs the base."""
    with pytest.raises(
        MappingRefused, match="Truck has no table of its own, so say whose it shares with `inherits=`"
    ):
        map_aggregate(registry(), Truck, None)


async def test_a_key_of_several_columns_is_as_good_as_one(rough: Bank) -> None:
    """C1, C4: the stream is the id's alone, so an id is used once, whatever else is in the key."""
    async with rough.session() as session:
        session.add(thing := Tenanted(uuid4(), "blue"))
        thing.record(Noted("made"))
        await session.commit()
        session.expunge_all()
        thing = await session.get_one(Tenanted, (thing.id, "blue"))
        thing.record(Noted("unmade"))
        await session.delete(thing)
        await session.commit()
        session.add(other := Tenanted(thing.__dict__["id"], "red"))
        other.record(Noted("made"))
        with pytest.raises(AggregateIdTaken):
            await session.commit()
    assert await rough.outbox() == ["1 made", "2 unmade"]


@pytest.fixture
def second_url(postgres_server: Server) -> Iterator[str]:
    with fresh_bank(postgres_server) as url:
        yield url


@pytest.fixture
async def second_bank(second_url: str) -> AsyncIterator[Bank]:
    engine = engine_of(second_url)
    yield Bank.on(engine)
    await engine.dispose()


async def test_a_session_with_several_databases_writes_each_event_beside_its_state(
    rough: Bank, second_bank: Bank
) -> None:
    """C1: and refuses a flush that would have to write to two of them."""
    binds: Any = {Wallet: second_bank.engine}
    maker = install_capture(async_sessionmaker(rough.engine, binds=binds, expire_on_commit=False))
    async with maker() as session:
        session.add(Wallet.open("there"))
        await session.commit()
        session.add(Car(uuid4()))
        bus_of(session).emit(Announced("here"))
        await session.commit()
        wallet, car = Wallet.open("refused"), Car(uuid4())
        wallet.note("refused")
        car.record(Noted("refused"))
        session.add_all([wallet, car])
        with pytest.raises(KernelError, match=r"aggregates of several databases.*one session per database"):
            await session.commit()
        await session.rollback()
        session.add_all([Wallet(uuid4(), "silent"), Car(uuid4())])
        await session.commit()
    assert (await rough.outbox(), await second_bank.outbox()) == (["- here"], ["1 there"])


# --- ids that are value objects --------------------------------------------------------------------------


@attrs.frozen
class BoxId:
    """A value object without an order."""

    value: UUID


class BoxIdType(TypeDecorator[BoxId]):
    """As an application writes it."""

    impl = Uuid
    cache_ok = True

    def process_bind_param(self, value: BoxId | None, dialect: object) -> UUID | None:
        return None if value is None else value.value

    def process_result_value(self, value: UUID | None, dialect: object) -> BoxId | None:
        return None if value is None else BoxId(value)


class Shouted(UserDefinedType[Any]):
    """A type without a column type of SQLAlchemy's behind it."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        return "text"

    def bind_processor(self, dialect: object) -> Any:
        return lambda value: value.text

    def result_processor(self, dialect: object, coltype: object) -> Any:
        return Shout


@attrs.frozen
class Shout:
    text: str


@attrs.frozen
class FlatNumber:
    """A value object that a mapper composes."""

    value: int

    def __composite_values__(self) -> tuple[int]:
        return (self.value,)


@aggregate("rough.box")
class Box(AggregateRoot):
    id: BoxId
    label: str = ""


@aggregate("rough.shout")
class Shouting(AggregateRoot):
    id: Shout


@aggregate("rough.flat")
class Flat(AggregateRoot):
    id: FlatNumber
    rooms: int = 1


@aggregate("rough.counted")
class Counted(AggregateRoot):
    id: int | None = None
    label: str = ""


@aggregate("rough.nowhere")
class Nowhere(AggregateRoot):
    id: UUID


boxes = Table(
    "rough_boxes",
    rough_metadata,
    Column("id", BoxIdType, primary_key=True),
    Column("label", Text),
    *aggregate_columns(),
)
shouts = Table("rough_shouts", rough_metadata, Column("id", Shouted, primary_key=True), *aggregate_columns())
flats = Table(
    "rough_flats",
    rough_metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("rooms", Integer),
    *aggregate_columns(),
)
counted = Table(
    "rough_counted",
    rough_metadata,
    Column("id", Integer, primary_key=True),
    Column("label", Text),
    *aggregate_columns(),
)
map_aggregate(rough_registry, Box, boxes)
map_aggregate(rough_registry, Shouting, shouts)
map_aggregate(rough_registry, Flat, flats, properties={"id": composite(FlatNumber, flats.c.number)})
map_aggregate(rough_registry, Counted, counted)


@pytest.mark.parametrize(
    "make", [lambda: Box(BoxId(uuid4())), lambda: Shouting(Shout(str(uuid4()))), lambda: Flat(FlatNumber(7))]
)
async def test_an_id_that_is_a_value_object_records_before_and_after_each_flush(
    rough: Bank, make: Any
) -> None:
    """K2: a composite too, which its mapper makes anew after each."""
    async with rough.session() as session:
        session.add(made := make())
        made.record(Noted("first"))
        await session.flush()
        made.record(Noted("second"))
        await session.commit()
    async with rough.session() as session:
        found = (await session.scalars(select(type(made)))).one()
        found.record(Noted("third"))
        await session.flush()
        found.record(Noted("fourth"))
        await session.commit()
        assert found.id == made.id
    assert await rough.outbox() == ["1 first", "2 second", "3 third", "4 fourth"]


@pytest.mark.parametrize("make", [lambda: Box(BoxId(uuid4())), lambda: Shouting(Shout(str(uuid4())))])
async def test_aggregates_whose_ids_have_no_order_are_changed_in_one_commit(rough: Bank, make: Any) -> None:
    """K2: a flush sorts its rows by them."""
    async with rough.session() as session:
        made = [make() for _ in range(3)]
        session.add_all(made)
        await session.commit()
        for each in made:
            each.record(Noted("changed"))
        await session.commit()
        for each in made:
            await session.delete(each)
        await session.commit()
    assert await rough.outbox() == ["1 changed"] * 3


async def test_the_unit_of_work_finds_a_composite_id(rough: Bank) -> None:
    """K2: by the value object, as any id."""
    async with SqlAlchemyUnitOfWork(rough.sessions) as uow:
        uow.repository(Flat).add(flat := Flat(FlatNumber(7)))
        await uow.commit()
        assert await uow.repository(Flat).get(FlatNumber(7)) is flat
        assert await uow.repository(Flat).get(FlatNumber(8)) is None


async def test_an_attrs_aggregate_may_leave_its_key_to_the_server(rough: Bank) -> None:
    """K2: `int | None` says so, and the events wait for the row."""
    async with rough.session() as session:
        session.add(made := Counted(label="x"))
        made.record(Noted("first"))
        made.record(Noted("second"))
        await session.commit()
        assert made.id == 1
        assert {event.aggregate_key for event in made.recorded_events} == set()
        made.record(third := Noted("third"))
        assert third.aggregate_key == "1"
        await session.commit()
    assert await rough.outbox() == ["1 first", "2 second", "3 third"]


async def test_an_aggregate_that_is_mapped_to_nothing_is_refused_in_a_sentence(rough: Bank) -> None:
    """C6: wherever a session or a repository meets it."""
    made = Nowhere(uuid4())
    made.record(Noted("lost"))
    refusal = r"Nowhere is mapped to no table, so no session can load or store it; call map_aggregate"
    async with rough.session() as session:
        with pytest.raises(MappingRefused, match=refusal):
            session.add(made)
        with pytest.raises(MappingRefused, match=refusal):
            session.add_all([made])
        with pytest.raises(MappingRefused, match=refusal):
            await session.get(Nowhere, made.id)
        with pytest.raises(UnmappedInstanceError):
            session.add(object())
        with pytest.raises(NoInspectionAvailable):
            await session.get(object, 1)
    async with SqlAlchemyUnitOfWork(rough.sessions) as uow:
        nowhere = uow.repository(Nowhere)
        with pytest.raises(MappingRefused, match=refusal):
            nowhere.add(made)
        with pytest.raises(MappingRefused, match=refusal):
            await nowhere.get(made.id)
        with pytest.raises(MappingRefused, match=refusal):
            await nowhere.remove(made)
