"""What an event costs the commit that records it: through the ORM with capture, and by bare asyncpg.

`sealed` says what it costs beside, if a field of each event is sealed for a subject that nobody has told of before: one
more statement, and a row for its key.

All write the same table and the same outbox with the same indexes. `orm_plain` is the honest
denominator: a session without capture. `orm_plain_captured` shows what capture costs who records nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlalchemy.ext.asyncio import async_sessionmaker

from benchmarks import many_rows
from benchmarks.databases import bare_connection, measured_database
from benchmarks.measuring import interleaved_medians_us
from benchmarks.parcels import INSERT_EVENT, INSERT_EVENTS, INSERT_PARCEL, Parcel, metadata, row_by_hand
from outbox_kernel.infrastructure.database import create_engine, session_factory
from outbox_kernel.infrastructure.master_keys import MasterKeys, new_master_key
from outbox_kernel.infrastructure.outbox import outbox_metadata

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import asyncpg
    from sqlalchemy.ext.asyncio import AsyncSession

ROUNDS = 2_000
SHORT_ROUNDS = 20
EVENTS = (0, 1, 10)
NAMES = {0: "plain", 1: "one_event", 10: "ten_events"}


async def run(*, short: bool = False) -> dict[str, Any]:
    """Measure, and return the figures by name."""
    rounds = SHORT_ROUNDS if short else ROUNDS
    async with measured_database() as url:
        engine = create_engine(url, pool_size=1)
        async with engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
            await connection.run_sync(outbox_metadata.create_all)
        bare = await bare_connection(url)
        try:
            uncaptured = async_sessionmaker(engine, expire_on_commit=False)
            captured = session_factory(engine, master_keys=MasterKeys.parse(new_master_key()))
            scenarios = _scenarios(captured, uncaptured, bare)
            medians = await interleaved_medians_us(scenarios, rounds)
            medians |= await many_rows.medians_us(session_factory(engine), uncaptured, bare, rounds // 10)
            wal = await _wal_bytes_per_event(scenarios, bare, rounds // 10)
            version = await bare.fetchval("SHOW server_version")
        finally:
            await bare.close()
            await engine.dispose()
    return {**_figures(medians), "wal_bytes_per_event": wal, "rounds": rounds, "postgresql": version}


def _scenarios(
    captured: async_sessionmaker[AsyncSession],
    plain: async_sessionmaker[AsyncSession],
    bare: asyncpg.Connection,
) -> dict[str, Callable[[], Awaitable[None]]]:
    scenarios: dict[str, Callable[[], Awaitable[None]]] = {
        "orm_plain_us": partial(_by_orm, plain, 0),
        "orm_plain_captured_us": partial(_by_orm, captured, 0),
    }
    for count in EVENTS[1:]:
        scenarios[f"orm_{NAMES[count]}_us"] = partial(_by_orm, captured, count)
        scenarios[f"orm_{NAMES[count]}_sealed_us"] = partial(_by_orm, captured, count, sealed=True)
    for count in EVENTS:
        scenarios[f"raw_{NAMES[count]}_us"] = partial(_by_hand, bare, count)
    return scenarios


async def _by_orm(sessions: async_sessionmaker[AsyncSession], events: int, *, sealed: bool = False) -> None:
    parcel = Parcel(uuid4(), "Ada Lovelace")
    async with sessions() as session:
        session.add(parcel.register_sealed(events) if sealed else parcel.register(events))
        await session.commit()


async def _by_hand(connection: asyncpg.Connection, events: int) -> None:
    """Do the same with bare asyncpg, in the fastest way a careful person would write by hand."""
    parcel_id = uuid4()
    async with connection.transaction():
        await connection.execute(INSERT_PARCEL, parcel_id, "Ada Lovelace", events)
        rows = [row_by_hand(parcel_id, number) for number in range(1, events + 1)]
        if events == 1:
            await connection.execute(INSERT_EVENT, *rows[0])
        elif events:
            await connection.execute(INSERT_EVENTS, *zip(*rows, strict=True))


def _figures(medians: dict[str, float]) -> dict[str, Any]:
    orm = {count: medians[f"orm_{NAMES[count]}_us"] for count in EVENTS}
    raw = {count: medians[f"raw_{NAMES[count]}_us"] for count in EVENTS}
    return {
        **{name: round(value, 1) for name, value in medians.items()},
        "overhead_ratio": round(orm[1] / orm[0], 3),
        "overhead_vs_raw": round((orm[1] - orm[0]) / (raw[1] - raw[0]), 3),
        "ten_events_vs_raw": round((orm[10] - orm[0]) / (raw[10] - raw[0]), 3),
        "sealed_vs_clear": round(medians["orm_one_event_sealed_us"] / orm[1], 3),
        "ten_sealed_vs_clear": round(medians["orm_ten_events_sealed_us"] / orm[10], 3),
        "many_vs_plain": round(medians["orm_many_plain_captured_us"] / medians["orm_many_plain_us"], 3),
        "many_events_vs_raw": round(medians["orm_many_events_us"] / medians["raw_many_events_us"], 3),
    }


async def _wal_bytes_per_event(
    scenarios: dict[str, Callable[[], Awaitable[None]]], bare: asyncpg.Connection, commits: int
) -> int:
    """Return the write-ahead log that one event adds to a commit, indexes included."""
    spent: dict[str, int] = {}
    for name in ("orm_plain_us", "orm_one_event_us"):
        # After a checkpoint the first touch of each page is logged whole; a few commits take that away.
        for _ in range(commits):
            await scenarios[name]()
        start = await bare.fetchval("SELECT pg_current_wal_insert_lsn()")
        for _ in range(commits):
            await scenarios[name]()
        spent[name] = await bare.fetchval("SELECT pg_current_wal_insert_lsn() - $1::pg_lsn", start)
    return round((spent["orm_one_event_us"] - spent["orm_plain_us"]) / commits)
