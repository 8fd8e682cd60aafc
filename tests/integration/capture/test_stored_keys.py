"""K2, C10: a key that its row would store otherwise is refused, since its events would be those of two aggregates."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import CHAR, Dialect, Text, TypeDecorator
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from outbox_kernel import MappedAggregate
from outbox_kernel.errors import IdentityMoved
from tests.bank import Bank
from tests.market import Told, streams


class Lower(TypeDecorator[str]):
    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return value and value.lower()


class Reversed(TypeDecorator[str]):
    """Stored otherwise, and read as it was written."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return value and value[::-1]

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return value and value[::-1]


class Shouted(TypeDecorator[str]):
    """Stored as it is, and read otherwise."""

    impl = Text
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return value and value.upper()


class Wrapped(TypeDecorator[UUID]):
    """A UUID as text: of another type on each side."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: UUID | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> UUID | None:
        return None if value is None else UUID(value)


class Base(DeclarativeBase):
    """Of what is kept by keys of many types."""


class Mailbox(MappedAggregate, Base):
    __tablename__ = "keys_mailboxes"

    id: Mapped[str] = mapped_column(Lower, primary_key=True)


class Country(MappedAggregate, Base):
    __tablename__ = "keys_countries"

    id: Mapped[str] = mapped_column(CHAR(3), primary_key=True)


class Mirror(MappedAggregate, Base):
    __tablename__ = "keys_mirrors"

    id: Mapped[str] = mapped_column(Reversed, primary_key=True)


class Code(MappedAggregate, Base):
    __tablename__ = "keys_codes"

    id: Mapped[str] = mapped_column(Shouted, primary_key=True)


class Parcel(MappedAggregate, Base):
    __tablename__ = "keys_parcels"

    id: Mapped[UUID] = mapped_column(Wrapped, primary_key=True)


@pytest.fixture
async def office(bank: Bank) -> AsyncIterator[Bank]:
    async with bank.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield bank
    async with bank.engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)


@pytest.mark.parametrize(
    ("cls", "key", "stored"), [(Mailbox, "Ada", "ada"), (Country, "de", "de "), (Code, "a1", "A1")]
)
async def test_a_key_that_its_column_would_change_is_refused(
    office: Bank, cls: Any, key: str, stored: str
) -> None:
    """K2: it says as what to create it."""
    async with office.session() as session:
        session.add(new := cls(id=key))
        new.record(Told("new"))
        with pytest.raises(IdentityMoved, match=rf"{key!r} of a new {cls.__name__} is stored as {stored!r}"):
            await session.commit()
        await session.rollback()
        session.add(right := cls(id=stored))
        right.record(Told("right"))
        await session.commit()
    assert [row[3] for row in await streams(office)] == ["right"]


@pytest.mark.parametrize(
    ("cls", "key"), [(Mailbox, "ada"), (Country, "deu"), (Mirror, "Ada"), (Code, "A1"), (Parcel, uuid4())]
)
async def test_a_key_that_is_read_as_it_was_written_is_taken(office: Bank, cls: Any, key: Any) -> None:
    """K2: however it is stored."""
    async with office.session() as session:
        session.add(new := cls(id=key))
        new.record(Told("new"))
        await session.commit()
    async with office.session() as session:
        (await session.get_one(cls, key)).record(Told("later"))
        await session.commit()
    rows = await streams(office)
    assert [row[2:] for row in rows] == [(1, "new"), (2, "later")]
    assert len({row[:2] for row in rows}) == 1
