"""An application as a measured process: it commits as much as goes on, or so many events a second."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import UUID

import attrs

from benchmarks.databases import bare_connection
from benchmarks.relay.parcels import WeighedParcel, new_parcel, weighed
from benchmarks.relay.sizes import AGGREGATES
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork, create_engine, session_factory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    import asyncpg
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

    from benchmarks.relay.meter import Meter

COMMITTERS = 4
EVENTS_EACH = 100
# More than what comes between two places that a busy relay writes down.
AHEAD_MAX = 10_000
LOOK_SECONDS = 0.01
DELIVERED = """
SELECT coalesce(sum(events), 0)::bigint
FROM (SELECT max(events) AS events FROM outbox_progress GROUP BY reader) AS reader
"""


async def in_a_closed_loop(
    meter: Meter, _: asyncio.Event, *, url: str, way: str, events: int
) -> dict[str, Any]:
    """Commit so many events, many at once, and wait while too many of them are not delivered."""
    firsts, change = iter(range(0, events, EVENTS_EACH)), _emit if way == "emit" else _add_new
    delivered = Delivered(await bare_connection(url))

    async def commit_all() -> None:
        for first in firsts:
            await delivered.reach(first - AHEAD_MAX)
            await _commit(sessions, change, range(first, min(first + EVENTS_EACH, events)))

    async with _sessions(url) as sessions:
        meter.begin()
        await asyncio.gather(*(commit_all() for _ in range(COMMITTERS)))
    await delivered.connection.close()
    return {}


@attrs.define(eq=False)
class Delivered:
    """How many events are delivered, as far as that was asked for."""

    connection: asyncpg.Connection
    events: int = 0
    _turn: asyncio.Lock = attrs.Factory(asyncio.Lock)

    async def reach(self, events: int) -> None:
        """Wait until so many are."""
        async with self._turn:
            while self.events < events:
                self.events = await self.connection.fetchval(DELIVERED)
                if self.events < events:
                    await asyncio.sleep(LOOK_SECONDS)


async def steadily(_: Meter, over: asyncio.Event, *, url: str, per_s: int) -> dict[str, Any]:
    """Commit so many events a second, each by itself, until told to stop."""
    numbers = count()

    async def commit_in_turn(number: int) -> None:
        due = time.monotonic() + number / per_s
        while not over.is_set():
            await asyncio.sleep(due - time.monotonic())
            await _commit(sessions, _emit, [next(numbers)])
            due += COMMITTERS / per_s

    async with _sessions(url) as sessions:
        await asyncio.gather(*(commit_in_turn(number) for number in range(COMMITTERS)))
    return {}


@asynccontextmanager
async def _sessions(url: str) -> AsyncIterator[async_sessionmaker[AsyncSession]]:
    engine = create_engine(url, pool_size=COMMITTERS, max_overflow=0)
    try:
        yield session_factory(engine)
    finally:
        await engine.dispose()


async def _commit(
    sessions: async_sessionmaker[AsyncSession],
    change: Callable[[SqlAlchemyUnitOfWork, int], None],
    numbers: Iterable[int],
) -> None:
    async with SqlAlchemyUnitOfWork(sessions) as unit:
        for number in numbers:
            change(unit, number)
        await unit.commit()


def _emit(unit: SqlAlchemyUnitOfWork, number: int) -> None:
    parcel_id = UUID(int=number % AGGREGATES)
    unit.emit(weighed(parcel_id), aggregate_type=WeighedParcel, aggregate_id=parcel_id)


def _add_new(unit: SqlAlchemyUnitOfWork, _: int) -> None:
    parcel = new_parcel()
    parcel.weigh()
    unit.repository(WeighedParcel).add(parcel)
