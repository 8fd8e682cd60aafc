"""A server whose disk is full: where its tables are, or where its log is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import ClassVar

from tests.faults.cell import TEMPLATE, Cell, execute, prepare
from tests.faults.clock import TooLate, until
from tests.faults.cluster import Cluster
from tests.faults.disk import SmallDisk, missing_small_disk
from tests.faults.rig import Rig
from tests.faults.server import IMMEDIATE, RestartableServer

FULL = "No space left on device"


class FullDiskCell(Cell):
    """Now and then the disk is filled up by somebody else, until the server has met it; then there is room again."""

    quick = False
    met_often_enough: ClassVar[int]
    disk: SmallDisk
    cluster: Cluster
    met: int

    def missing(self) -> str | None:
        """Say what the machine does not allow."""
        return missing_small_disk()

    @asynccontextmanager
    async def server(self, common: RestartableServer, database: str) -> AsyncIterator[RestartableServer]:
        del common
        self.met = 0
        with SmallDisk() as self.disk:
            self.cluster = await self.make(await self.disk.folder_for_the_server("server"))
            await self.disk.run(self.cluster.start)
            try:
                await prepare(self.cluster)
                await execute(self.cluster, f"CREATE DATABASE {database} TEMPLATE {TEMPLATE}")
                await self.use(database)
                yield self.cluster
            finally:
                await self.disk.run(self.cluster.stop)

    async def make(self, folder: Path) -> Cluster:
        """Make a server that may have something on the disk."""
        raise NotImplementedError

    async def use(self, database: str) -> None:
        """Put the cell's database there."""

    async def injure(self, rig: Rig) -> None:
        if rig.injected % 3 != 1:
            return
        before = self._times_met()

        async def met() -> bool:
            return self._times_met() >= before + self.met_often_enough

        await self.disk.fill()
        with suppress(TooLate):  # nothing is left to be written
            await until(met, "the disk is full", seconds=2 * rig.scale.moved_seconds_max)
        self.met += self._times_met() - before
        await self.disk.free()
        await self.revive()
        await rig.goes_on()

    def _times_met(self) -> int:
        return (self.cluster.run_folder / "log").read_text(errors="replace").count(FULL)

    async def revive(self) -> None:
        """Start what has not survived it."""

    async def check(self, rig: Rig) -> None:
        if not self.met:
            rig.remarks.append("the server has not met a full disk")


class DiskFull(FullDiskCell):
    """That of the tables: statements that need another page fail."""

    met_often_enough: ClassVar[int] = 20

    async def make(self, folder: Path) -> Cluster:
        self._folder = folder
        return Cluster()

    async def use(self, database: str) -> None:
        await execute(self.cluster, f"CREATE TABLESPACE small LOCATION '{self._folder}'")
        await execute(self.cluster, f"ALTER DATABASE {database} SET TABLESPACE small")


class WalDiskFull(FullDiskCell):
    """That of the write-ahead log: the server goes down, and comes up once there is room."""

    met_often_enough: ClassVar[int] = 1

    async def make(self, folder: Path) -> Cluster:
        return Cluster(wal_folder=folder / "wal")

    async def revive(self) -> None:
        await self.disk.run(lambda: self.cluster.restart(IMMEDIATE))


DISK_CELLS = (DiskFull(), WalDiskFull())
