"""What a cell is: one kind of fault, and how the rig plays it from an empty database to the judgement."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import asyncpg
from attrs import define

from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.settings import Settings
from tests.brokers import OwnBroker
from tests.faults.clock import TooLate
from tests.faults.judge import Judgement, judge
from tests.faults.rig import Rig, Scale
from tests.faults.server import RestartableServer
from tests.faults.tables import DDL, USUAL, Promise

TEMPLATE = "faults_template"


class Cell:
    """One kind of fault."""

    carried: ClassVar[tuple[Promise, ...]] = USUAL
    needs_broker: ClassVar[bool] = False
    quick: ClassVar[bool] = True
    """Whether it fits into a short run."""

    @property
    def name(self) -> str:
        """Its name, as it is asked for."""
        words = "".join(
            f" {letter.lower()}" if letter.isupper() else letter for letter in type(self).__name__
        )
        return words.strip().replace(" ", "-")

    def missing(self) -> str | None:
        """Say what this machine lacks for it, or None."""
        return None

    async def play(self, rig: Rig) -> None:
        """Start relays and writers, and do harm while they work."""
        await rig.start_relays()
        await rig.start_writers()
        async for _ in rig.beats():
            await self.injure(rig)

    async def injure(self, rig: Rig) -> None:
        """Do harm once."""

    async def check(self, rig: Rig) -> None:
        """Add remarks about promises that are this cell's own."""

    async def judge(self, rig: Rig, result: Judgement) -> None:
        """Add what was found in other places."""

    async def leave(self, rig: Rig) -> None:
        """Take away what else was made."""

    @asynccontextmanager
    async def server(self, common: RestartableServer, database: str) -> AsyncIterator[RestartableServer]:
        """Give the server that has the cell's database."""
        await execute(common, f"CREATE DATABASE {database} TEMPLATE {TEMPLATE}")
        try:
            yield common
        finally:
            await execute(common, f"DROP DATABASE {database} WITH (FORCE)")


@define
class Report:
    """How a cell went."""

    cell: str
    judgement: Judgement
    injected: int
    moved_seconds: float
    seconds: float


async def prepare(server: RestartableServer) -> None:
    """Make the database from which every cell's is copied."""
    connection = await asyncpg.connect(server.url)
    await connection.execute(f"CREATE DATABASE {TEMPLATE}")
    await connection.close()
    engine = create_engine(server.url_of(TEMPLATE))
    await migrate(engine, Settings(contexts=()))
    await engine.dispose()
    connection = await asyncpg.connect(server.url_of(TEMPLATE))
    await connection.execute(DDL)
    await connection.close()


async def play(
    cell: Cell,
    server: RestartableServer,
    folder: Path,
    scale: Scale,
    seed: str,
    broker: OwnBroker | None = None,
) -> Report:
    """Play a cell to its end and judge it."""
    begun = time.monotonic()
    async with _stage(cell, server, folder, scale, seed) as rig:
        rig.broker = broker
        try:
            await cell.play(rig)
            await rig.written()
        except TooLate as error:
            rig.remarks.append(str(error))
        await rig.heal()
        settled = await rig.settled()
        await cell.check(rig)
        try:
            await rig.end_relays()
        except TooLate as error:
            rig.remarks.append(str(error))
        async with rig.connection() as connection:
            judgement = await judge(
                connection, rig.carried, rig.names, rig.fleet.acknowledged, rig.undecodable
            )
        await cell.judge(rig, judgement)
        for remark in rig.remarks:
            judgement.remark(remark)
        if not settled:
            judgement.remarks.append(f"not settled within {scale.settle_seconds:g} s")
    return Report(cell.name, judgement, rig.injected, rig.moved_seconds, time.monotonic() - begun)


@asynccontextmanager
async def _stage(
    cell: Cell, server: RestartableServer, folder: Path, scale: Scale, seed: str
) -> AsyncIterator[Rig]:
    database = "faults_" + cell.name.replace("-", "_")
    logs = folder / cell.name
    logs.mkdir()
    async with cell.server(server, database) as found:
        rig = Rig(found, database, logs, scale, f"{seed}:{cell.name}", cell.carried)
        try:
            yield rig
        finally:
            await rig.fleet.close()
            await cell.leave(rig)


async def execute(server: RestartableServer, statement: str) -> None:
    """Execute a statement outside the cells' databases."""
    connection = await asyncpg.connect(server.url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
