"""A shop whose aggregates map themselves, in each style that SQLAlchemy knows: the domain of the tests of C10."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Column, ForeignKey, Identity, Integer, Table, Text, func, select, text
from sqlalchemy.ext.asyncio import AsyncAttrs
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    WriteOnlyMapped,
    column_property,
    composite,
    mapped_column,
    relationship,
    synonym,
)

from outbox_kernel import DomainEvent, MappedAggregate, event
from outbox_kernel.infrastructure.outbox.tables import outbox_events
from tests.bank import Bank


@event("shop.told")
class Told(DomainEvent):
    what: str


class Base(AsyncAttrs, DeclarativeBase):
    """The application's own, as it was before."""


class Order(MappedAggregate, Base):
    """A key that the server counts, columns with defaults of either side, children, what SQL computes."""

    __tablename__ = "shop_orders"
    __aggregate__ = "shop.order"

    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(default="new")
    cents: Mapped[int] = mapped_column(default=0)
    made_at: Mapped[datetime] = mapped_column(server_default=func.now())
    lines: Mapped[list[Line]] = relationship(
        back_populates="order", cascade="all, delete-orphan", order_by="Line.id"
    )
    found_lines: WriteOnlyMapped[Line] = relationship(viewonly=True)

    def place(self) -> None:
        self.status = "placed"
        self.record(Told("placed"))

    @hybrid_property
    def is_open(self) -> bool:
        return self.status != "closed"


class Line(Base):
    __tablename__ = "shop_lines"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("shop_orders.id"))
    what: Mapped[str]
    order: Mapped[Order] = relationship(back_populates="lines")


class Counted(MappedAggregate, Base):
    """A key that only the server may make."""

    __tablename__ = "shop_counted"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)


class Article(MappedAggregate, Base):
    """A key that is a text."""

    __tablename__ = "shop_articles"
    __aggregate__ = "shop.article"

    id: Mapped[str] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(default="")
    loud: Mapped[str] = column_property(func.upper(title))


class Ticket(MappedAggregate, Base):
    """A UUID that the column's default makes, as late as in the flush."""

    __tablename__ = "shop_tickets"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)


class Stamped(MappedAggregate, Base):
    """A UUID that the server makes."""

    __tablename__ = "shop_stamped"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=text("gen_random_uuid()"))


class Renamed(MappedAggregate, Base):
    """A primary key of another name."""

    __tablename__ = "shop_renamed"

    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[int] = synonym("number")


@dataclass(frozen=True)
class InvoiceNumber:
    """A value object that the mapper composes."""

    value: int


class Invoice(MappedAggregate, Base):
    """A key that is a composite."""

    __tablename__ = "market_invoices"
    __aggregate__ = "shop.invoice"

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    id: Mapped[InvoiceNumber] = composite("number")
    paid: Mapped[int] = mapped_column(default=0)


class Parcel(MappedAggregate, MappedAsDataclass, Base, kw_only=True):
    """A dataclass: compared by its values, and not to be hashed."""

    __tablename__ = "shop_parcels"
    __aggregate__ = "shop.parcel"

    id: Mapped[int] = mapped_column(primary_key=True, init=False)
    grams: Mapped[int]
    label: Mapped[str] = mapped_column(default="none")


class Hashed(MappedAggregate, MappedAsDataclass, Base, unsafe_hash=True):
    """A dataclass that is hashed by its values, which change."""

    __tablename__ = "shop_hashed"

    id: Mapped[int] = mapped_column(primary_key=True, init=False)
    grams: Mapped[int]


class Vehicle(MappedAggregate, Base):
    """The root of a hierarchy, in one table and in joined ones."""

    __tablename__ = "shop_vehicles"
    __aggregate__ = "shop.vehicle"
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "vehicle"}  # noqa: RUF012 - SQLAlchemy's way

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]


class Car(Vehicle):
    __tablename__ = "shop_cars"
    __aggregate__ = "shop.car"
    __mapper_args__ = {"polymorphic_identity": "car"}  # noqa: RUF012

    id: Mapped[int] = mapped_column(ForeignKey("shop_vehicles.id"), primary_key=True)
    doors: Mapped[int] = mapped_column(default=4)


class Truck(Vehicle):
    __aggregate__ = "shop.truck"
    __mapper_args__ = {"polymorphic_identity": "truck"}  # noqa: RUF012

    tons: Mapped[int | None]


class Tabled(MappedAggregate, Base):
    """With a Table that was made apart."""

    __table__ = Table(
        "shop_tabled",
        Base.metadata,
        Column("id", Integer, primary_key=True),
        Column("label", Text),
        Column("version", Integer, nullable=False, server_default=text("0")),
        Column("revision", Integer, nullable=False, server_default=text("1")),
    )


@asynccontextmanager
async def market_in(bank: Bank) -> AsyncIterator[Bank]:
    async with bank.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield bank
    async with bank.engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)


async def placed(bank: Bank) -> int:
    """An order whose first event is stored; its key is returned."""
    async with bank.session() as session:
        session.add(order := Order())
        order.place()
        await session.commit()
        return order.id


async def streams(bank: Bank) -> list[tuple[Any, ...]]:
    """What the outbox holds, in the order of position: type, key, number, what."""
    columns = outbox_events.c
    query = select(
        columns.aggregate_type,
        columns.aggregate_key,
        columns.aggregate_version,
        columns.payload["what"].astext,
    ).order_by(columns.position)
    async with bank.engine.connect() as connection:
        return [tuple(row) for row in await connection.execute(query)]
