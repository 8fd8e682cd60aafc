"""C4, C6: many rows of one flush go together whatever their mapping."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Column, FetchedValue, ForeignKey, Integer, MetaData, Table, Text, Uuid, func, select
from sqlalchemy.orm import Session, registry, sessionmaker

from outbox_kernel.errors import ConcurrencyError
from outbox_kernel.infrastructure.outbox import MappingRefused, aggregate_columns, map_aggregate
from outbox_kernel.kernel import AggregateRoot, aggregate
from tests.bank import Bank
from tests.drivers import Driver, statements

MANY = 64
# Each table's first row, and the others together.
HANDFUL = 4

Sessions = sessionmaker[Session]


@aggregate("test.shelf")
class Shelf(AggregateRoot):
    id: UUID
    kind: str = "shelf"
    label: str = ""
    length: int = 0


@aggregate("test.rack")
class Rack(Shelf):
    kind: str = "rack"
    boards: int = 1


@aggregate("test.meter")
class Meter(AggregateRoot):
    id: UUID
    label: str = ""
    tick: int = 0


shelf_metadata = MetaData()
shelf_registry = registry(metadata=shelf_metadata)
shelves = Table(
    "many_shelves",
    shelf_metadata,
    Column("id", Uuid, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("length", Integer, onupdate=func.length("four"), server_onupdate=FetchedValue()),
    *aggregate_columns(),
)
racks = Table(
    "many_racks",
    shelf_metadata,
    Column("id", ForeignKey("many_shelves.id"), primary_key=True),
    Column("boards", Integer),
)
meters = Table(
    "many_meters",
    shelf_metadata,
    Column("id", Uuid, primary_key=True),
    Column("label", Text, nullable=False),
    Column("tick", Integer, onupdate=partial(next, count(1))),
    *aggregate_columns(),
)
map_aggregate(shelf_registry, Shelf, shelves, polymorphic_on=shelves.c.kind, polymorphic_identity="shelf")
map_aggregate(
    shelf_registry, Rack, racks, inherits=Shelf, polymorphic_identity="rack", polymorphic_load="selectin"
)
map_aggregate(shelf_registry, Meter, meters)


@pytest.fixture
async def shelf_tables(bank: Bank) -> AsyncIterator[None]:
    async with bank.engine.begin() as connection:
        await connection.run_sync(shelf_metadata.create_all)
    yield
    async with bank.engine.begin() as connection:
        await connection.run_sync(shelf_metadata.drop_all)


def stocked(session: Session) -> list[Shelf]:
    """Commit shelves and racks in turn, of which each rack has a row in two tables."""
    made = [(Rack if number % 2 else Shelf)(UUID(int=number)) for number in range(MANY)]
    session.add_all(made)
    session.commit()
    return made


@pytest.mark.usefixtures("shelf_tables")
async def test_aggregates_of_joined_tables_go_together_and_read_what_the_server_computes(
    driver: Driver, sessions: Sessions
) -> None:
    """C4, C6: the base's rows first, all of them, then those of the subclass."""

    def work() -> tuple[list[str], list[tuple[Any, ...]]]:
        with sessions() as session:
            made = stocked(session)
            for number, shelf in enumerate(made):
                shelf.label = str(number)
                if isinstance(shelf, Rack):
                    shelf.boards = number
            with statements(driver) as sent:
                session.commit()
            read = [(each.label, each.length, getattr(each, "boards", None)) for each in made]
        return sent, read

    sent, read = await driver.run(work)
    assert len(sent) <= HANDFUL, sent
    assert read == [(str(number), 4, number if number % 2 else None) for number in range(MANY)]


@pytest.mark.usefixtures("shelf_tables")
@pytest.mark.parametrize("removing", [False, True])
async def test_a_stale_row_of_joined_tables_is_found_in_the_base(
    driver: Driver, sessions: Sessions, removing: bool
) -> None:
    """C4, C6: a change of the subclass' table alone writes the base's row as well, since the lock is there."""

    def work() -> None:
        with sessions() as session:
            made = stocked(session)
            with sessions.begin() as other:
                other.get_one(Shelf, UUID(int=33)).label = "first"
            for shelf in made:
                if removing:
                    session.delete(shelf)
                elif isinstance(shelf, Rack):
                    shelf.boards = 9
            with pytest.raises(ConcurrencyError):
                session.commit()
            session.rollback()
            assert (
                session.scalar(select(func.count()).select_from(racks).where(racks.c.boards == 1)) == MANY / 2
            )

    await driver.run(work)


@pytest.mark.usefixtures("shelf_tables")
async def test_a_value_that_is_made_here_for_each_row_is_that_rows(
    driver: Driver, sessions: Sessions
) -> None:
    """C4: a default of Python's for updates, which the object has after the flush as the row does."""

    def work() -> None:
        with sessions() as session:
            made = [Meter(uuid4()) for _ in range(8)]
            session.add_all(made)
            session.commit()
            for meter in made:
                meter.label = "read"
            session.commit()
            held = {meter.id: meter.tick for meter in made}
            assert len(set(held.values())) == 8
            assert dict(session.execute(select(meters.c.id, meters.c.tick)).all()) == held

    await driver.run(work)


def test_a_mapping_that_does_not_confirm_deletions_is_refused() -> None:
    """C4: a deletion of what another writer has changed would go through."""

    @aggregate("test.careless")
    class Careless(AggregateRoot):
        id: UUID

    table = Table("many_careless", MetaData(), Column("id", Uuid, primary_key=True), *aggregate_columns())
    careless = registry()
    map_aggregate(careless, Careless, table, confirm_deleted_rows=False)
    with pytest.raises(MappingRefused, match="Careless is mapped with confirm_deleted_rows=False"):
        careless.configure()
    careless.dispose()
