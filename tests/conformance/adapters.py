"""What the suite needs of an adapter of the port UnitOfWork, and the adapters."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar
from uuid import UUID, uuid4

from attrs import frozen
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork, session_factory
from outbox_kernel.infrastructure.outbox.tables import outbox_events
from outbox_kernel.kernel import DomainEvent, UnitOfWork, deserialize_event
from outbox_kernel.kernel.testing import InMemoryStore, InMemoryUnitOfWork
from tests.conformance.wallets import (
    DECLARED_OWNER_KEY,
    OWNER_KEY,
    DeclaredWallet,
    MappedWallet,
    OwnerTaken,
    PlainWallet,
    Wallet,
)

COLUMNS = (
    "event_id",
    "event_type",
    "event_version",
    "aggregate_type",
    "aggregate_id",
    "aggregate_version",
    "payload",
    "occurred_at",
    "aggregate_key",
    "not_before",
    "sensitive",
    "headers",
)


@frozen
class Record:
    """One row of the outbox, without its position."""

    event_id: UUID
    event_type: str
    event_version: int
    aggregate_type: str | None
    aggregate_id: UUID | None
    aggregate_version: int | None
    payload: dict[str, Any]
    occurred_at: Any
    aggregate_key: str | None
    not_before: Any
    sensitive: Any
    headers: dict[str, Any]

    @property
    def event(self) -> DomainEvent:
        return deserialize_event(self.event_type, self.payload, self.event_version)


@frozen
class Adapter:
    """One implementation of the port, and a look at what it has committed."""

    wallet: type[Wallet]
    """Or what behaves like one, its ids of another type."""
    unit_of_work: Callable[[], UnitOfWork]
    outbox: Callable[[], Awaitable[list[Record]]]

    async def events(self) -> list[DomainEvent]:
        return [record.event for record in await self.outbox()]

    async def numbers(self) -> list[int | None]:
        return [record.aggregate_version for record in await self.outbox()]

    @property
    def is_declared(self) -> bool:
        """Whether wallets map themselves, and have integers for keys."""
        return self.wallet.__name__ == DeclaredWallet.__name__

    def new_id(self) -> Any:
        """An id that nobody has."""
        return 1_000_000 if self.is_declared else uuid4()

    async def stored(self, wallet_id: UUID) -> Wallet | None:
        """What somebody else finds."""
        async with self.unit_of_work() as uow:
            return await uow.repository(self.wallet).get(wallet_id)

    async def given(self, owner: str = "ada") -> UUID:
        """A wallet that is stored, its first event with it."""
        wallet = self.wallet.open(owner)
        async with self.unit_of_work() as uow:
            uow.repository(self.wallet).add(wallet)
            await uow.commit()
        return wallet.id


class MemoryUnitOfWork(InMemoryUnitOfWork):
    unique: ClassVar[Mapping[type[Any], Any]] = {
        PlainWallet: {"owner": OwnerTaken},
        MappedWallet: {("owner",): OwnerTaken},
        DeclaredWallet: {"owner": OwnerTaken},
    }


class SqlUnitOfWork(SqlAlchemyUnitOfWork):
    constraint_errors: ClassVar[Mapping[str, Callable[[], Exception]]] = {
        OWNER_KEY: OwnerTaken,
        DECLARED_OWNER_KEY: OwnerTaken,
    }


def memory(wallet: type[Wallet]) -> Adapter:
    store = InMemoryStore()

    async def outbox() -> list[Record]:
        records = [record._asdict() for record in store.outbox]
        assert [record.pop("position") for record in records] == list(range(1, len(records) + 1))
        return [Record(**{**record, "payload": json.loads(record["payload"])}) for record in records]

    return Adapter(wallet, lambda: MemoryUnitOfWork(store), outbox)


def postgres(engine: AsyncEngine, wallet: type[Wallet]) -> Adapter:
    sessions = session_factory(engine)
    query = select(*(outbox_events.c[name] for name in COLUMNS)).order_by(outbox_events.c.position)

    async def outbox() -> list[Record]:
        async with engine.connect() as connection:
            return [Record(*row) for row in await connection.execute(query)]

    return Adapter(wallet, lambda: SqlUnitOfWork(sessions), outbox)
