"""A small bank, the domain of the tests of capture: wallets with entries as children, and what is announced of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import attrs
from sqlalchemy import Column, ForeignKey, Integer, MetaData, Table, Text, Uuid
from sqlalchemy.orm import registry, relationship

from outbox_kernel.infrastructure.outbox import aggregate_columns, map_aggregate
from outbox_kernel.kernel import AggregateRoot, DomainEvent, aggregate, event


@event("bank.opened")
class Opened(DomainEvent):
    what: str


@event("bank.paid")
class Paid(DomainEvent):
    what: str
    amount: int


@event("bank.noted")
class Noted(DomainEvent):
    what: str


@event("bank.announced")
class Announced(DomainEvent):
    what: str


@attrs.define(slots=False, eq=False)
class Entry:
    """A child entity: it has a row of its own and is reached through its wallet alone."""

    text: str
    id: UUID = attrs.Factory(uuid4)


@aggregate("bank.wallet")
class Wallet(AggregateRoot):
    id: UUID
    owner: str = ""
    balance: int = 0
    entries: list[Entry] = attrs.Factory(list)

    @classmethod
    def open(cls, owner: str = "ada") -> Wallet:
        wallet = cls(uuid4(), owner)
        wallet.record(Opened(owner))
        return wallet

    def pay(self, amount: int) -> None:
        self.balance += amount
        self.record(Paid(str(amount), amount))

    def note(self, what: str) -> None:
        """Record an event and change no other attribute."""
        self.record(Noted(what))

    def enter(self, text: str) -> None:
        """Change a child, and say so."""
        self.record(Noted(text))
        self.entries.append(Entry(text))


bank_metadata = MetaData()

wallets = Table(
    "bank_wallets",
    bank_metadata,
    Column("id", Uuid, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("balance", Integer, nullable=False),
    *aggregate_columns(),
)
entries = Table(
    "bank_entries",
    bank_metadata,
    Column("id", Uuid, primary_key=True),
    Column("wallet_id", Uuid, ForeignKey("bank_wallets.id", ondelete="CASCADE"), nullable=False),
    Column("text", Text, nullable=False),
)
# What Core statements of the tests write: no class is mapped to it.
journal = Table("bank_journal", bank_metadata, Column("line", Text, nullable=False))

bank_registry = registry()


def _map_bank() -> None:
    bank_registry.map_imperatively(Entry, entries)
    owned: Any = relationship(Entry, lazy="selectin", cascade="all, delete-orphan")
    map_aggregate(bank_registry, Wallet, wallets, properties={"entries": owned})


_map_bank()
