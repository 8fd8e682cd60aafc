"""One aggregate for all adapters: plain, and mapped to a table."""

from __future__ import annotations

from uuid import UUID, uuid4

from sqlalchemy import Column, Integer, MetaData, Table, Text, UniqueConstraint, Uuid
from sqlalchemy.orm import registry

from outbox_kernel.infrastructure.outbox import aggregate_columns, map_aggregate
from outbox_kernel.kernel import AggregateRoot, DomainEvent, aggregate, event

OWNER_KEY = "conformance_wallets_owner_key"


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
