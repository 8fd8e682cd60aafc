"""One aggregate for all adapters: plain, mapped to a table, and declared as its model."""

from __future__ import annotations

import itertools
from uuid import UUID, uuid4

from sqlalchemy import Column, ForeignKey, Integer, MetaData, Table, Text, UniqueConstraint, Uuid
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, registry, relationship

from outbox_kernel.infrastructure.outbox import MappedAggregate, aggregate_columns, map_aggregate
from outbox_kernel.kernel import AggregateRoot, DomainEvent, aggregate, event

OWNER_KEY = "conformance_wallets_owner_key"
DECLARED_OWNER_KEY = "conformance_declared_wallets_owner_key"


@event("conformance.opened")
class Opened(DomainEvent):
    owner: str


@event("conformance.paid")
class Paid(DomainEvent):
    amount: int


@event("conformance.announced")
class Announced(DomainEvent):
    what: str


class OwnerTaken(Exception):
    """Another wallet has this owner."""


@aggregate("conformance.wallet")
class Wallet(AggregateRoot):
    id: UUID
    owner: str = ""
    balance: int = 0

    @classmethod
    def open(cls, owner: str = "ada", wallet_id: UUID | None = None) -> Wallet:
        wallet = cls(wallet_id or uuid4(), owner)
        wallet.record(Opened(owner))
        return wallet

    def pay(self, amount: int) -> None:
        self.balance += amount
        self.record(Paid(amount))

    def hand_to(self, owner: str) -> None:
        """Change without an event."""
        self.owner = owner


@aggregate("conformance.plain_wallet")
class PlainWallet(Wallet):
    """As a project has it whose unit tests import no persistence."""


@aggregate("conformance.mapped_wallet")
class MappedWallet(Wallet):
    """As a project has it whose persistence is imported, whatever it is tested with."""


wallets_metadata = MetaData()

wallets = Table(
    "conformance_wallets",
    wallets_metadata,
    Column("id", Uuid, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("balance", Integer, nullable=False),
    *aggregate_columns(),
    UniqueConstraint("owner", name=OWNER_KEY),
)

map_aggregate(registry(), MappedWallet, wallets)

_numbers = itertools.count(1)


class Base(DeclarativeBase):
    """An application's own."""

    metadata = wallets_metadata


class Slip(Base):
    """A child, compared by its identity."""

    __tablename__ = "conformance_slips"

    id: Mapped[int] = mapped_column(primary_key=True)
    wallet_id: Mapped[int] = mapped_column(ForeignKey("conformance_declared_wallets.id"))
    amount: Mapped[int]


class DeclaredWallet(MappedAggregate, Base):
    """As a project has it whose models are declarative, with integers for keys and with children."""

    __tablename__ = "conformance_declared_wallets"
    __aggregate__ = "conformance.declared_wallet"
    __table_args__ = (UniqueConstraint("owner", name=DECLARED_OWNER_KEY),)

    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(default="")
    balance: Mapped[int] = mapped_column(default=0)
    slips: Mapped[list[Slip]] = relationship(lazy="selectin", cascade="all, delete-orphan")

    @classmethod
    def open(cls, owner: str = "ada", wallet_id: int | None = None) -> DeclaredWallet:
        wallet = cls(id=wallet_id or next(_numbers), owner=owner, balance=0, slips=[])
        wallet.record(Opened(owner))
        return wallet

    def pay(self, amount: int) -> None:
        self.balance += amount
        self.record(Paid(amount))

    def slip(self, amount: int) -> None:
        """Pay, with a child that tells of it."""
        self.slips.append(Slip(amount=amount))
        self.pay(amount)

    def hand_to(self, owner: str) -> None:
        """Change without an event."""
        self.owner = owner


class Payment(MappedAggregate, Base):
    """The base of a hierarchy."""

    __tablename__ = "conformance_payments"
    __aggregate__ = "conformance.payment"
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "payment"}  # noqa: RUF012 - SQLAlchemy's way

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    cents: Mapped[int] = mapped_column(default=0)


class CardPayment(Payment):
    """In its base's table."""

    __aggregate__ = "conformance.card_payment"
    __mapper_args__ = {"polymorphic_identity": "card"}  # noqa: RUF012

    digits: Mapped[str | None]


class WirePayment(Payment):
    """In a table joined to its base's."""

    __tablename__ = "conformance_wire_payments"
    __aggregate__ = "conformance.wire_payment"
    __mapper_args__ = {"polymorphic_identity": "wire"}  # noqa: RUF012

    id: Mapped[int] = mapped_column(ForeignKey("conformance_payments.id"), primary_key=True)
    bank: Mapped[str] = mapped_column(default="")


class Ledger(MappedAggregate, Base):
    """Its row makes its key, and its columns have defaults."""

    __tablename__ = "conformance_ledgers"

    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(default="untitled")
    pages: Mapped[int] = mapped_column(default=lambda: 1)
