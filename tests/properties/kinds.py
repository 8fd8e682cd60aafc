"""What the capture machine drives: attrs classes with UUIDs for keys, and declared models with integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import attrs
from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from outbox_kernel import MappedAggregate
from outbox_kernel.kernel.identity import uuid_of
from tests.domain import Noted, Paid, Wallet


class Base(DeclarativeBase):
    """An application's own."""


class DeclaredEntry(Base):
    __tablename__ = "machine_entries"

    id: Mapped[int] = mapped_column(primary_key=True)
    wallet_id: Mapped[int] = mapped_column(ForeignKey("machine_wallets.id", ondelete="CASCADE"))
    text: Mapped[str]


class DeclaredWallet(MappedAggregate, Base):
    """As `tests.domain.Wallet`, declared."""

    __tablename__ = "machine_wallets"
    __aggregate__ = "machine.wallet"

    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(default="")
    balance: Mapped[int] = mapped_column(default=0)
    entries: Mapped[list[DeclaredEntry]] = relationship(lazy="selectin", cascade="all, delete-orphan")

    def pay(self, amount: int) -> None:
        self.balance += amount
        self.record(Paid(str(amount), amount))

    def note(self, what: str) -> None:
        self.record(Noted(what))

    def enter(self, text: str) -> None:
        self.record(Noted(text))
        self.entries.append(DeclaredEntry(text=text))


@attrs.frozen
class Kind:
    """A class of wallets, and where it is stored."""

    cls: Any
    make: Callable[[int], Any]
    wallets: str
    entries: str

    def stream(self, key: object) -> UUID | None:
        """What the outbox knows a wallet by."""
        return None if key is None else uuid_of(key)


IMPERATIVE = Kind(Wallet, lambda number: Wallet(UUID(int=number), "ada"), "bank_wallets", "bank_entries")
DECLARED = Kind(
    DeclaredWallet,
    lambda number: DeclaredWallet(id=number, owner="ada", balance=0, entries=[]),
    "machine_wallets",
    "machine_entries",
)
