"""What a commit takes that changes many loaded aggregates, each of which records an event, or none.

Each writer has rows of its own and holds them loaded; what is timed are the changes and their commit. A session without
capture sends a statement per row, since the mapping has a lock and SQLAlchemy has to count. Bare asyncpg looks at all
locks in one statement.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from benchmarks.measuring import interleaved_medians_us
from benchmarks.parcels import INSERT_EVENTS, Parcel, row_by_hand

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import asyncpg
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

MANY = 64

UPDATE_PARCELS = """
UPDATE bench_parcels AS parcel
SET recipient = changed.recipient, version = parcel.version + 1, revision = parcel.revision + 1
FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS changed (id, revision, recipient)
WHERE parcel.id = changed.id AND parcel.revision = changed.revision
"""


async def medians_us(
    captured: async_sessionmaker[AsyncSession],
    plain: async_sessionmaker[AsyncSession],
    bare: asyncpg.Connection,
    rounds: int,
) -> dict[str, float]:
    """Return the medians by name."""
    async with plain() as uncaptured, captured() as silent, captured() as telling:
        scenarios: dict[str, Callable[[], Awaitable[None]]] = {
            "orm_many_plain_us": partial(_by_orm, uncaptured, await _stored(uncaptured), 0),
            "orm_many_plain_captured_us": partial(_by_orm, silent, await _stored(silent), 0),
            "orm_many_events_us": partial(_by_orm, telling, await _stored(telling), 1),
        }
        ids = [parcel.id for parcel in await _stored(uncaptured)]
        scenarios["raw_many_events_us"] = partial(_by_hand, bare, ids, dict.fromkeys(ids, 0))
        return await interleaved_medians_us(scenarios, rounds)


async def _stored(session: AsyncSession) -> list[Parcel]:
    parcels = [Parcel(uuid4(), "Ada Lovelace") for _ in range(MANY)]
    session.add_all(parcels)
    await session.commit()
    return parcels


async def _by_orm(session: AsyncSession, parcels: list[Parcel], events: int) -> None:
    for parcel in parcels:
        parcel.recipient = _other_than(parcel.recipient)
        parcel.register(events)
    await session.commit()


async def _by_hand(connection: asyncpg.Connection, ids: list[UUID], written: dict[UUID, int]) -> None:
    async with connection.transaction():
        held: list[Any] = [
            ids,
            [written[each] + 1 for each in ids],
            [_other_than(str(written[ids[0]]))] * MANY,
        ]
        if await connection.execute(UPDATE_PARCELS, *held) != f"UPDATE {MANY}":
            raise RuntimeError("another writer was here, and nobody else knows these rows")
        rows = [row_by_hand(each, written[each] + 1) for each in ids]
        await connection.execute(INSERT_EVENTS, *zip(*rows, strict=True))
    for each in ids:
        written[each] += 1


def _other_than(recipient: str) -> str:
    return "Ada Lovelace" if recipient == "Grace Hopper" else "Grace Hopper"
