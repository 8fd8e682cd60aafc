"""The bank's database as the tests of capture see it: sessions to write with, sentences to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any
from uuid import UUID

from attrs import frozen
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from outbox_kernel.infrastructure.database import create_engine, session_factory
from outbox_kernel.infrastructure.outbox import bus_of, outbox_metadata
from outbox_kernel.infrastructure.outbox.tables import outbox_events
from tests import servers
from tests.domain import Announced, Wallet, bank_metadata, entries, journal, wallets

events = outbox_events.c


async def create_bank(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.run_sync(outbox_metadata.create_all)
        await connection.run_sync(bank_metadata.create_all)


@contextmanager
def fresh_bank(server: servers.Server) -> Iterator[str]:
    """The URL of a new database with the bank's tables in it."""

    async def create(url: str) -> None:
        engine = create_engine(url)
        await create_bank(engine)
        await engine.dispose()

    with servers.fresh_database(server) as url:
        servers.run(create(url))
        yield url


def engine_of(url: str) -> AsyncEngine:
    """An engine for tests: no commit waits for the disk, which nothing outlives, and no lock hangs the run."""
    options = {"synchronous_commit": "off", "lock_timeout": "10s"}
    return create_engine(url, connect_args={"server_settings": options})


async def empty_bank(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(
            text(
                "TRUNCATE outbox_events, outbox_arrivals, outbox_subject_keys, bank_wallets, bank_entries, "
                "bank_journal "
                "RESTART IDENTITY"
            )
        )


@frozen
class Bank:
    """What one test needs: sessions with capture, and a look at what other connections see."""

    engine: AsyncEngine
    sessions: async_sessionmaker[AsyncSession]

    @classmethod
    def on(cls, engine: AsyncEngine) -> Bank:
        return cls(engine, session_factory(engine))

    def session(self, **options: Any) -> AbstractAsyncContextManager[AsyncSession]:
        return self.sessions(**options)

    @staticmethod
    def emit(session: AsyncSession, what: str) -> None:
        """Emit on the session's own bus."""
        bus_of(session).emit(Announced(what))

    async def open_wallet(self, owner: str = "ada") -> UUID:
        """Commit a new wallet; its stream is then `["1 ada"]`."""
        async with self.sessions() as session:
            wallet = Wallet.open(owner)
            session.add(wallet)
            await session.commit()
            return wallet.id

    async def stream(self, wallet_id: UUID) -> list[str]:
        """What the outbox holds of a wallet, as `number what`, in the order of position."""
        return await self._told(events.aggregate_id == wallet_id)

    async def outbox(self) -> list[str]:
        """What the whole outbox holds, as `number what`, in the order of position; `-` where no number is."""
        return await self._told()

    async def payloads(self) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
        """Type, payload and headers of every row."""
        query = select(events.event_type, events.payload, events.headers).order_by(events.position)
        async with self.engine.connect() as connection:
            return [(row[0], row[1], row[2]) for row in await connection.execute(query)]

    async def row(self, wallet_id: UUID) -> tuple[int, int] | None:
        """Balance and version of a wallet's row."""
        query = select(wallets.c.balance, wallets.c.version).where(wallets.c.id == wallet_id)
        async with self.engine.connect() as connection:
            row = (await connection.execute(query)).one_or_none()
            return None if row is None else (row[0], row[1])

    async def entries(self, wallet_id: UUID) -> list[str]:
        """The texts of a wallet's children."""
        return await self._column(select(entries.c.text).where(entries.c.wallet_id == wallet_id))

    async def journal(self) -> list[str]:
        """The lines that Core statements wrote."""
        return await self._column(select(journal.c.line))

    async def _told(self, *conditions: Any) -> list[str]:
        query = select(events.aggregate_version, events.payload["what"].astext)
        async with self.engine.connect() as connection:
            rows = await connection.execute(query.where(*conditions).order_by(events.position))
            return [f"{number or '-'} {what}" for number, what in rows]

    async def _column(self, query: Any) -> list[str]:
        async with self.engine.connect() as connection:
            return list(await connection.scalars(query))


async def loaded(session: AsyncSession, wallet_id: UUID) -> Wallet:
    """The wallet, which must be there."""
    return await session.get_one(Wallet, wallet_id)
