"""C3b: what a rollback has made new again is stored whole when it is added again, with its links to others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Column, ForeignKey, Identity, Table, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from outbox_kernel import MappedAggregate
from outbox_kernel.errors import StaleAggregate
from tests.bank import Bank
from tests.domain import Wallet
from tests.market import Counted, Line, Order, Told, streams


class Base(DeclarativeBase):
    """Of a cinema, in which all are linked."""


class Genre(Base):
    __tablename__ = "cinema_genres"

    id: Mapped[int] = mapped_column(primary_key=True)
    films: Mapped[list[Film]] = relationship(secondary="cinema_links", back_populates="genres")


class Studio(MappedAggregate, Base):
    __tablename__ = "cinema_studios"
    __aggregate__ = "cinema.studio"

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)


class Film(MappedAggregate, Base):
    __tablename__ = "cinema_films"
    __aggregate__ = "cinema.film"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    studio_id: Mapped[int | None] = mapped_column(ForeignKey("cinema_studios.id"))
    studio: Mapped[Studio | None] = relationship()
    genres: Mapped[list[Genre]] = relationship(secondary="cinema_links", back_populates="films")


links = Table(
    "cinema_links",
    Base.metadata,
    Column("film", ForeignKey("cinema_films.id"), primary_key=True),
    Column("genre", ForeignKey("cinema_genres.id"), primary_key=True),
)


New = TypeVar("New", Film, Order)


@pytest.fixture
async def cinema(bank: Bank) -> AsyncIterator[Bank]:
    async with bank.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield bank
    async with bank.engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)


def filmed(**links: Any) -> Film:
    film = Film(id=uuid4(), **links)
    film.record(Told("filmed"))
    return film


async def undone(session: AsyncSession, make: Callable[[], New], *, in_savepoint: bool) -> New:
    """Make it, store it, and roll that back."""
    savepoint = await session.begin_nested() if in_savepoint else session
    new = make()
    session.add(new)
    await session.flush()
    await savepoint.rollback()
    return new


@pytest.mark.parametrize("in_savepoint", [True, False])
async def test_children_of_an_aggregate_with_a_key_that_its_row_makes_are_its_own(
    shop: Bank, in_savepoint: bool
) -> None:
    """C3b: of the key that it gets now, whatever the database would let stand."""

    def make() -> Order:
        order = Order(lines=[Line(what="tea"), Line(what="milk")])
        order.place()
        return order

    async with shop.session() as session:
        order = await undone(session, make, in_savepoint=in_savepoint)
        order.lines.append(Line(what="rum"))
        session.add(order)
        await session.commit()
        stored = await session.scalars(select(Line.what).where(Line.order_id == order.id))
        assert sorted(stored) == ["milk", "rum", "tea"]
    assert await streams(shop) == [("shop.order", str(order.id), 1, "placed")]


@pytest.mark.parametrize("in_savepoint", [True, False])
async def test_rows_between_two_are_stored_again(cinema: Bank, in_savepoint: bool) -> None:
    """C3b: many to many, with a genre that stays stored."""
    async with cinema.session() as session:
        session.add(genre := Genre())
        await session.commit()
        film = await undone(session, lambda: filmed(genres=[genre, Genre()]), in_savepoint=in_savepoint)
        session.add(film)
        await session.commit()
        count = await session.scalar(select(func.count()).where(links.c.film == film.id))
        assert count == len(film.genres) == 2
    assert await streams(cinema) == [("cinema.film", None, 1, "filmed")]


@pytest.mark.parametrize("in_savepoint", [True, False])
async def test_a_reference_is_to_the_key_that_the_other_gets_now(cinema: Bank, in_savepoint: bool) -> None:
    """C3b: many to one."""
    async with cinema.session() as session:
        film = await undone(session, lambda: filmed(studio=Studio()), in_savepoint=in_savepoint)
        session.add(film)
        await session.commit()
        assert film.studio is not None
        found = await session.scalar(select(Film.studio_id).where(Film.id == film.id))
        assert found == film.studio.id


async def test_a_reference_that_was_set_by_its_key_alone_stays(cinema: Bank) -> None:
    """C3b: no object says otherwise."""
    async with cinema.session() as session:
        session.add(studio := Studio())
        await session.commit()
        key = studio.id
        film = await undone(session, lambda: filmed(studio_id=key), in_savepoint=False)
        assert film.studio is None
        session.add(film)
        await session.commit()
        assert await session.scalar(select(Film.studio_id).where(Film.id == film.id)) == key


async def test_what_was_born_deleted_and_undone_lives_like_any_other_when_it_is_added_again(
    bank: Bank,
) -> None:
    """C3b: it records once it is stored, and is changed and deleted then."""
    async with bank.session() as session:
        session.add(wallet := Wallet.open())
        await session.flush()
        await session.delete(wallet)
        await session.flush()
        await session.rollback()
        session.add(wallet)
        await session.flush()
        wallet.note("stored")
        await session.commit()
        wallet.note("farewell")
        await session.delete(wallet)
        await session.commit()
    assert await bank.stream(wallet.id) == ["1 ada", "2 stored", "3 farewell"]


async def test_what_was_refused_on_a_deleted_aggregate_is_no_event_of_it_when_it_is_new_again(
    bank: Bank,
) -> None:
    """C3b: the refused event was never recorded, so that adding it again commits all the others."""
    async with bank.session() as session:
        session.add(wallet := Wallet.open())
        await session.flush()
        await session.delete(wallet)
        await session.flush()
        with pytest.raises(StaleAggregate, match="deleted"):
            wallet.note("too late")
        await session.rollback()
        session.add(wallet)
        await session.commit()
    assert await bank.stream(wallet.id) == ["1 ada"]


async def test_a_key_that_was_made_goes_with_its_row_though_that_was_deleted_before(shop: Bank) -> None:
    """C3b, K2: only the server may make it, so that it makes another one."""
    async with shop.session() as session:
        session.add(counted := Counted())
        counted.record(Told("counted"))
        await session.flush()
        await session.delete(counted)
        await session.flush()
        await session.rollback()
        session.add(counted)
        await session.commit()
    assert await streams(shop) == [("Counted", str(counted.id), 1, "counted")]
