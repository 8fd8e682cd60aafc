"""An application whose models are declarative, as a type checker sees it (C10, D4): it is checked, and never run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_type
from uuid import UUID

from sqlalchemy import ForeignKey, func, select
from sqlalchemy.ext.asyncio import AsyncAttrs, AsyncSession, async_sessionmaker
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import (
    DeclarativeBase,
    InstrumentedAttribute,
    Mapped,
    MappedAsDataclass,
    Session,
    column_property,
    composite,
    mapped_column,
    relationship,
)

from outbox_kernel import (
    AggregateRoot,
    DomainEvent,
    MappedAggregate,
    Repository,
    SqlAlchemyUnitOfWork,
    UnitOfWork,
    create_engine,
    event,
    install_capture,
)
from outbox_kernel.testing import InMemoryStore, InMemoryUnitOfWork


class Base(AsyncAttrs, DeclarativeBase):
    """The application's own."""


@event("order.placed")
class OrderPlaced(DomainEvent):
    """It was."""

    cents: int


class Order(MappedAggregate, Base):
    """An order."""

    __tablename__ = "orders"
    __aggregate__ = "order"

    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(default="new")
    note: Mapped[str | None]
    cents: Mapped[int] = mapped_column(default=0)
    lines: Mapped[list[Line]] = relationship(back_populates="order")
    loud: Mapped[str] = column_property(func.upper(status))

    @hybrid_property
    def is_open(self) -> bool:
        """Whether something may be added."""
        return self.status != "closed"

    def place(self, cents: int) -> None:
        """Place it."""
        self.status, self.cents = "placed", cents
        self.record(OrderPlaced(cents))


class Line(Base):
    """A part of an order."""

    __tablename__ = "lines"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    order: Mapped[Order] = relationship(back_populates="lines")


class Parcel(MappedAggregate, MappedAsDataclass, Base, kw_only=True):
    """A dataclass."""

    __tablename__ = "parcels"

    id: Mapped[int] = mapped_column(primary_key=True, init=False)
    grams: Mapped[int]
    label: Mapped[str] = mapped_column(default="none")


class Vehicle(MappedAggregate, Base):
    """The root of a hierarchy."""

    __tablename__ = "vehicles"
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "vehicle"}  # noqa: RUF012 - SQLAlchemy's way

    id: Mapped[UUID] = mapped_column(primary_key=True)
    kind: Mapped[str]


class Car(Vehicle):
    """In a joined table."""

    __tablename__ = "cars"
    __mapper_args__ = {"polymorphic_identity": "car"}  # noqa: RUF012

    id: Mapped[UUID] = mapped_column(ForeignKey("vehicles.id"), primary_key=True)
    doors: Mapped[int]


@dataclass(frozen=True)
class InvoiceNumber:
    """A value object."""

    value: int


class Invoice(MappedAggregate, Base):
    """A key that is a composite."""

    __tablename__ = "invoices"

    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[InvoiceNumber] = composite("number")


def attributes_are_typed() -> None:
    """On the class as columns, on an instance as values."""
    order = Order(status="new", note=None)
    assert_type(order.id, int)
    assert_type(order.status, str)
    assert_type(order.note, str | None)
    assert_type(order.version, int)
    assert_type(order.revision, int)
    assert_type(order.lines, list[Line])
    assert_type(order.is_open, bool)
    assert_type(Order.id, InstrumentedAttribute[int])
    assert_type(Order.status, InstrumentedAttribute[str])
    assert_type(Order.version, InstrumentedAttribute[int])
    assert_type(Car(id=UUID(int=1), doors=4).doors, int)
    assert_type(Invoice(number=1).id, InvoiceNumber)
    assert_type(Parcel(grams=5).label, str)
    assert_type(order.recorded_events, tuple[DomainEvent, ...])
    order.place(500)
    root: AggregateRoot = order
    assert_type(root.version, int)


def queries_are_typed(session: Session) -> None:
    """As they were without the mixin."""
    assert_type(
        session.scalars(select(Order).where(Order.status == "new", Order.is_open)).all(), Sequence[Order]
    )
    assert_type(session.scalars(select(Order.status).order_by(Order.version)).all(), Sequence[str])
    assert_type(session.execute(select(Order.id, Order.note)).one().tuple(), tuple[int, str | None])
    assert_type(session.get(Order, 1), Order | None)
    assert_type(session.get_one(Car, UUID(int=1)), Car)


async def sessions_are_typed(url: str) -> None:
    """With capture."""
    maker = install_capture(async_sessionmaker(create_engine(url), expire_on_commit=False))
    assert_type(maker, async_sessionmaker[AsyncSession])
    async with maker.begin() as session:
        assert_type(await session.get(Order, 1), Order | None)
        order = await session.get_one(Order, 1)
        await order.awaitable_attrs.lines
        order.place(1)


async def units_of_work_are_typed(maker: async_sessionmaker[AsyncSession]) -> None:
    """On PostgreSQL and in memory."""
    units: list[UnitOfWork] = [SqlAlchemyUnitOfWork(maker), InMemoryUnitOfWork(InMemoryStore())]
    for uow in units:
        async with uow:
            assert_type(uow.repository(Order), Repository[Order])
            assert_type(await uow.repository(Order).get(1), Order | None)
            uow.repository(Parcel).add(Parcel(grams=1))
            uow.emit(OrderPlaced(1), aggregate_type=Order, aggregate_id=42)
            await uow.commit()
