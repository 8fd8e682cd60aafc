"""Processes that commit: one event now and then, or as many as the server takes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from benchmarks.relay.meter import each_after_a_while
from benchmarks.relay.parcels import new_parcel
from outbox_kernel.infrastructure.database import create_engine, session_factory

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

    from benchmarks.relay.meter import Meter


async def captured_commits(
    _: Meter, __: asyncio.Event, *, url: str, commits: int, every: float
) -> dict[str, Any]:
    """Commit one event at a time through a captured session; note when each commit is acknowledged."""
    engine = create_engine(url, pool_size=1)
    sessions = session_factory(engine)
    moments_ns = await each_after_a_while(commits, every, lambda: _commit_captured(sessions))
    await engine.dispose()
    return {"moments_ns": moments_ns}


async def _commit_captured(sessions: async_sessionmaker[AsyncSession]) -> str:
    parcel = new_parcel()
    event = parcel.weigh()
    async with sessions() as session:
        session.add(parcel)
        await session.commit()
        # The moment counts from here; to close the session costs nothing that waits.
        return str(event.event_id)


async def writers(
    _: Meter, __: asyncio.Event, *, url: str, committers: int, slices: int, seconds: float
) -> dict[str, Any]:
    """Commit as fast as so many can, in slices with and without the wake-up; return the commits per second of each."""
    engine = create_engine(url, pool_size=committers, max_overflow=0)
    makers = {"with": session_factory(engine), "without": session_factory(engine, wake_up=False)}
    rates: dict[str, list[float]] = {name: [] for name in makers}
    for maker in makers.values():
        await _slice(maker, committers, seconds / 4)  # connects and warms up
    for number in range(slices):
        for name in sorted(makers, reverse=bool(number % 2)):
            rates[name].append(await _slice(makers[name], committers, seconds))
    await engine.dispose()
    return rates


async def _slice(sessions: async_sessionmaker[AsyncSession], committers: int, seconds: float) -> float:
    start = time.monotonic()

    async def commit_all() -> int:
        commits = 0
        while time.monotonic() - start < seconds:
            await _commit_captured(sessions)
            commits += 1
        return commits

    total = sum(await asyncio.gather(*(commit_all() for _ in range(committers))))
    return total / (time.monotonic() - start)
