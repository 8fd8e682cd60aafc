"""Writers as wild as they come: savepoints, rollbacks, late commits, bare inserts, a stranger who never commits."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg
import attrs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

AGGREGATES = 40
LOCKING, BARE = 12, 8
FIRST_BARE = 1_000
TABLES = """
CREATE TABLE IF NOT EXISTS law_roots (aggregate int PRIMARY KEY, version int NOT NULL);
CREATE TABLE IF NOT EXISTS law_strangers (x int);
TRUNCATE law_roots, law_strangers
"""
ROOTS = "INSERT INTO law_roots SELECT n, 0 FROM generate_series(1, $1) AS n"
NEXT = "UPDATE law_roots SET version = version + 1 WHERE aggregate = $1 RETURNING version"
WRITE = """
INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
                           payload, occurred_at)
VALUES ($1, $2, 1, 'bank.wallet', $3, $4, $5::text::jsonb, clock_timestamp())
"""
# A transaction that takes its time: in the server, which has nothing else to tell the one who waits for it.
STAY = "SELECT pg_sleep($1)"
COMMITTED = "SELECT payload->>'what' AS what FROM outbox_events"
LATE_CHANCE, LATE_SECONDS = 0.02, 1.5
PAUSE_CHANCE, PAUSE_SECONDS = 0.4, 0.05
SAVEPOINT_CHANCE, ROLLBACK_CHANCE, UNDO_CHANCE = 0.3, 0.2, 0.3


@attrs.frozen
class Written:
    """Which event it is: of which aggregate, which number."""

    aggregate: int
    version: int

    @classmethod
    def of(cls, what: str) -> Written:
        return cls(*map(int, what.split(":")))

    @property
    def is_noted(self) -> bool:
        """Whether it is of the first type of event; others are of the second."""
        return self.aggregate % 2 == 0


async def put(connection: Any, aggregate: int, version: int) -> None:
    """Insert an event; what it says is which it is."""
    name = "bank.noted" if Written(aggregate, version).is_noted else "bank.announced"
    what = json.dumps({"what": f"{aggregate}:{version}"})
    await connection.execute(WRITE, uuid4(), name, UUID(int=aggregate), version, what)


async def committed(witness: Any) -> set[Written]:
    """All events there are."""
    return {Written.of(row["what"]) for row in await witness.fetch(COMMITTED)}


@attrs.define(eq=False)
class Wild:
    """Writers of so many events."""

    url: str
    dice: random.Random
    events: int
    count: int = 0
    _awaited: dict[int, asyncio.Event] = attrs.Factory(dict)

    async def write(self, locking: int = LOCKING, bare: int = BARE) -> None:
        """Have all of them at work until there are as many events, those that are rolled back included."""
        await self._prepare()
        tasks = [self._lock_and_write(random.Random(self.dice.random())) for _ in range(locking)]
        tasks += [self._write_bare(FIRST_BARE + number) for number in range(bare)]
        async with asyncio.TaskGroup() as group:
            for each in (*tasks, self._stay_open()):
                group.create_task(each)

    @property
    def is_over(self) -> bool:
        return self.count >= self.events

    async def reached(self, share: float) -> None:
        """Return when such a share of the events was written."""
        await self._awaited.setdefault(min(self.events, round(self.events * share)), asyncio.Event()).wait()

    async def _put(self, connection: Any, aggregate: int, version: int) -> None:
        await put(connection, aggregate, version)
        self.count += 1
        for count, event in self._awaited.items():
            if self.count >= count:
                event.set()

    async def _prepare(self) -> None:
        connection = await asyncpg.connect(self.url)
        await connection.execute(TABLES)
        await connection.execute(ROOTS, AGGREGATES)
        await connection.close()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(self.url, server_settings={"synchronous_commit": "off"})
        try:
            yield connection
        finally:
            await connection.close()

    async def _lock_and_write(self, dice: random.Random) -> None:
        """Transactions as a unit of work's, each root locked by its number; some are late, some are undone."""
        async with self._connection() as connection:
            while not self.is_over:
                transaction = connection.transaction()
                await transaction.start()
                try:
                    for _ in range(dice.randint(1, 3)):
                        await self._write_one(connection, dice)
                    if dice.random() < LATE_CHANCE:
                        await connection.execute(STAY, LATE_SECONDS)
                    await (
                        transaction.rollback() if dice.random() < ROLLBACK_CHANCE else transaction.commit()
                    )
                except asyncpg.DeadlockDetectedError:
                    await transaction.rollback()

    async def _write_one(self, connection: Any, dice: random.Random) -> None:
        savepoint = connection.transaction() if dice.random() < SAVEPOINT_CHANCE else None
        if savepoint is not None:
            await savepoint.start()
        aggregate = dice.randint(1, AGGREGATES)
        await self._put(connection, aggregate, await connection.fetchval(NEXT, aggregate))
        if dice.random() < PAUSE_CHANCE:
            await connection.execute(STAY, dice.random() * PAUSE_SECONDS)
        if savepoint is not None:
            await (savepoint.rollback() if dice.random() < UNDO_CHANCE else savepoint.commit())

    async def _write_bare(self, aggregate: int) -> None:
        """Single inserts without a lock, which race for position, transaction id and commit."""
        version = 0
        async with self._connection() as connection:
            while not self.is_over:
                version += 1
                await self._put(connection, aggregate, version)

    async def _stay_open(self) -> None:
        """A stranger who has written and does not commit."""
        async with self._connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("INSERT INTO law_strangers VALUES (1)")
            await self.reached(1)
            await transaction.rollback()
