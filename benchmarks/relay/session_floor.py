"""The floor of whoever works through SQLAlchemy: its own session for the same rows, and nothing of ours."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
from sqlalchemy import Numeric, Uuid, column, insert, table, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from benchmarks.relay.floors import KILOGRAMS, PLANS, BareReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.relay.meter import Meter

_bookings = table(
    "bench_bookings", column("event_id", Uuid), column("parcel_id", Uuid), column("kilograms", Numeric)
)
_book = insert(_bookings)
_receipt = text("INSERT INTO outbox_receipts (event_id, handler) VALUES (:event_id, 'bench.book')")


async def session_effects(meter: Meter, _: asyncio.Event, *, url: str, concurrency: int) -> dict[str, Any]:
    """Give each event a session and a transaction of its own with both rows; it reads as the other floor does."""
    engine = create_async_engine(
        url.replace("postgresql://", "postgresql+asyncpg://"), pool_size=concurrency, max_overflow=0
    )
    sessions = async_sessionmaker(engine, expire_on_commit=False)
    async with asyncpg.create_pool(url, min_size=2, max_size=2, server_settings=PLANS) as pool:
        reader = BareReader(pool, meter)
        while rows := await reader.read():
            left = iter(rows)
            await asyncio.gather(*(_book_all(sessions, left) for _ in range(concurrency)))
            await reader.save(rows)
    await engine.dispose()
    return {}


async def _book_all(sessions: async_sessionmaker[AsyncSession], rows: Iterator[asyncpg.Record]) -> None:
    for row in rows:
        async with sessions() as session:
            values = {"event_id": row["event_id"], "parcel_id": row["aggregate_id"], "kilograms": KILOGRAMS}
            await session.execute(_book, values)
            await session.execute(_receipt, {"event_id": row["event_id"]})
            await session.commit()
