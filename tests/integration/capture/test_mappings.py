"""C6: aggregates that share a table, inherit one, have a key of several columns, or lie in several databases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest
from sqlalchemy import Column, ForeignKey, Integer, MetaData, Table, Text, Uuid, select
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import registry

from outbox_kernel.infrastructure.outbox import (
    MappingRefused,
    aggregate_columns,
    bus_of,
    install_capture,
    map_aggregate,
)
from outbox_kernel.kernel import (
    AggregateIdTaken,
    AggregateRoot,
    ConcurrencyError,
    KernelError,
    StaleAggregate,
    aggregate,
)
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
    assert (await rough.outbox(), await second_bank.outbox()) == (["- here"], ["1 there"])
