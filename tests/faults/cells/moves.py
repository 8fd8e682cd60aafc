"""The outbox goes on at another server: a standby that is promoted, a dump that is restored, a logical copy."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import ClassVar

from tests.commands import ROOT
from tests.faults.by_hand import late
from tests.faults.cell import TEMPLATE, Cell, execute, prepare
from tests.faults.clock import until
from tests.faults.cluster import Cluster, url_at
from tests.faults.rig import Rig
from tests.faults.server import RestartableServer
from tests.faults.tables import PLAIN
from tests.proxy import Proxy

READY_SECONDS_MAX = 60.0
BATCH = 20


class MovingCell(Cell):
    """It has servers of its own, all of which go at its end."""

    quick = False
    servers: ExitStack
    here: Cluster
    """The one that clients are to use."""

    @asynccontextmanager
    async def server(self, common: RestartableServer, database: str) -> AsyncIterator[RestartableServer]:
        del common
        with ExitStack() as self.servers:
            self.here = await self.add(self.first())
            await prepare(self.here)
            await execute(self.here, f"CREATE DATABASE {database} TEMPLATE {TEMPLATE}")
            yield self.here

    def first(self) -> Cluster:
        """The server on which it begins."""
        return Cluster()

    async def add(self, cluster: Cluster) -> Cluster:
        """Start one more server."""
        return await asyncio.to_thread(self.servers.enter_context, cluster)


class StandbyPromoted(MovingCell):
    """The primary crashes, and its standby takes its place, which has whatever was acknowledged."""

    proxy: Proxy

    async def play(self, rig: Rig) -> None:
        await self._give_a_standby(rig)
        self.proxy = Proxy("127.0.0.1", self.here.port)
        await self.proxy.open()
        url = {"DATABASE_URL": url_at("127.0.0.1", self.proxy.here, rig.database)}
        await rig.start_relays(url)
        await rig.start_writers(url)
        async for number in rig.beats():
            if number % 3 == 1:
                await self._promote(rig)
                await self._give_a_standby(rig)

    async def _promote(self, rig: Rig) -> None:
        await self.proxy.close()
        await asyncio.to_thread(self.here.end)
        await rig.value("SELECT pg_promote()", at=self.standby.url)
        rig.server = self.here = self.standby
        self.proxy.port = self.here.port
        await self.proxy.open()
        for seat in rig.fleet.relays:
            seat.home = rig.url
        await rig.goes_on()

    async def _give_a_standby(self, rig: Rig) -> None:
        self.standby = await self.add(Cluster(copy_of=self.here))
        await rig.value("ALTER SYSTEM SET synchronous_standby_names = '*'", at=self.here.url)
        await rig.value("SELECT pg_reload_conf()", at=self.here.url)

        async def synchronous() -> bool:
            return await rig.number(SYNCHRONOUS, at=self.here.url) == 1

        await until(synchronous, "the standby keeps up", seconds=READY_SECONDS_MAX)

    async def leave(self, rig: Rig) -> None:
        await self.proxy.close()


class StandbyInTheUrl(StandbyPromoted):
    """The same, once, where clients know the addresses of both."""

    async def play(self, rig: Rig) -> None:
        await self._give_a_standby(rig)
        places = ",".join(f"127.0.0.1:{each.port}" for each in (self.here, self.standby))
        url = {"DATABASE_URL": f"postgresql://postgres@{places}/{rig.database}?target_session_attrs=primary"}
        await rig.start_relays(url)
        await rig.start_writers(url)
        async for number in rig.beats():
            if number == 2:
                await self._promote(rig)

    async def _promote(self, rig: Rig) -> None:
        await self._lose()
        await rig.value("SELECT pg_promote()", at=self.standby.url)
        rig.server = self.here = self.standby
        for seat in rig.fleet.relays:
            seat.home = rig.url
        await rig.goes_on()

    async def _lose(self) -> None:
        await asyncio.to_thread(self.here.end)

    async def leave(self, rig: Rig) -> None:
        """Nothing else was made."""


class PrimarySilent(StandbyInTheUrl):
    """The same, and connections to the primary stand: as if its machine were gone, it only says nothing any more."""

    async def _lose(self) -> None:
        self.servers.enter_context(self.here.frozen())


SYNCHRONOUS = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"


class MovedWhileStopped(MovingCell):
    """Relays are stopped in the middle of their work, and others go on at another server.

    What is inserted early and committed late is there for no relay of the old server.
    """

    epochs: ClassVar[tuple[int, int]] = (0, 0)
    """Of the transactions here and there."""

    def first(self) -> Cluster:
        return Cluster(epoch=self.epochs[0])

    async def play(self, rig: Rig) -> None:
        old, new = self.here, await self.add(Cluster(epoch=self.epochs[1]))
        await rig.start_relays({"OUTBOX_BATCH_SIZE": str(BATCH)})
        await rig.start_writers(share=0.25)
        await self.prepare_move(rig, old, new)
        async with rig.connection() as one, rig.connection() as other, late(one):
            await rig.start_writers(share=0.25)
            await rig.has_done(self._share(rig, 0.2))
            async with late(other):
                await rig.has_done(self._share(rig, 0.3))
                await asyncio.gather(*(seat.close() for seat in rig.fleet.relays))
            await rig.written()
        await self.move(rig, old, new)
        self.moved_at = await rig.value("SELECT clock_timestamp()", at=new.url)
        await asyncio.to_thread(old.end)
        rig.server, rig.injected = new, 1
        await rig.start_relays({"OUTBOX_BATCH_SIZE": str(BATCH)})
        await rig.start_writers(share=0.5)
        await rig.written()

    @staticmethod
    def _share(rig: Rig, share: float) -> int:
        return int(rig.scale.events * share) * len(rig.carried)

    async def prepare_move(self, rig: Rig, old: Cluster, new: Cluster) -> None:
        """Do what is done while all work."""

    async def move(self, rig: Rig, old: Cluster, new: Cluster) -> None:
        """Take over what is there, while nobody works."""
        raise NotImplementedError

    async def check(self, rig: Rig) -> None:
        # No receipt guards this one, and what a relay gives back may be half done.
        again = await rig.value(DONE_AGAIN, PLAIN.handler, self.moved_at)
        if again > BATCH * rig.scale.relays:
            rig.remarks.append(f"{again} events that were done before the move were done again after it")


DONE_AGAIN = """
SELECT count(DISTINCT before.event_id)
FROM faults_effects AS before JOIN faults_effects AS after USING (handler, event_id)
WHERE handler = $1 AND before.at < $2 AND after.at >= $2
"""


class DumpRestored(MovedWhileStopped):
    """By pg_dump and pg_restore, into a server that has counted about as many transactions."""

    async def move(self, rig: Rig, old: Cluster, new: Cluster) -> None:
        before, after = await transactions(rig, old), await transactions(rig, new)
        if (before < after, before > after) != (
            self.epochs[0] < self.epochs[1],
            self.epochs[0] > self.epochs[1],
        ):
            rig.remarks.append(f"the servers have counted {before} and {after} epochs")
        await copy(rig, old, new)


async def transactions(rig: Rig, cluster: Cluster) -> int:
    """The epoch in which a server counts its transactions."""
    return int(await rig.value("SELECT (pg_current_xact_id()::text::numeric / 2^32)::int", at=cluster.url))


async def copy(rig: Rig, old: Cluster, new: Cluster, *which: str) -> None:
    """Dump the database here and restore it there."""
    await execute(new, f"CREATE DATABASE {rig.database}")
    dump = new.run_folder / "dump"
    written: tuple[str | Path, ...] = (
        "--format=custom",
        "--file",
        dump,
        "--dbname",
        old.url_of(rig.database),
        *which,
    )
    await asyncio.to_thread(new.tool, "pg_dump", *written)
    read: tuple[str | Path, ...] = ("--exit-on-error", "--dbname", new.url_of(rig.database), dump)
    await asyncio.to_thread(new.tool, "pg_restore", *read)


class DumpRestoredFarAbove(DumpRestored):
    """The new server has counted many more transactions than the old one."""

    epochs: ClassVar[tuple[int, int]] = (0, 7)


class DumpRestoredFarBelow(DumpRestored):
    """The new server has counted far fewer than the old one."""

    epochs: ClassVar[tuple[int, int]] = (7, 0)


class LogicalCopy(MovedWhileStopped):
    """A subscription to all tables, made while all work, and taken over as the runbook says."""

    async def prepare_move(self, rig: Rig, old: Cluster, new: Cluster) -> None:
        here, there = old.url_of(rig.database), new.url_of(rig.database)
        await rig.has_done(self._share(rig, 0.1))
        await copy(rig, old, new, "--schema-only")
        await rig.value("CREATE PUBLICATION everything FOR ALL TABLES", at=here)
        await rig.value(f"CREATE SUBSCRIPTION follower CONNECTION '{here}' PUBLICATION everything", at=there)

        async def copied() -> bool:
            return await rig.number(NOT_COPIED, at=there) == 0

        await until(copied, "all tables are copied", seconds=READY_SECONDS_MAX)

    async def move(self, rig: Rig, old: Cluster, new: Cluster) -> None:
        there, written = new.url_of(rig.database), await rig.value(FLUSHED)

        async def caught_up() -> bool:
            return await rig.number(CAUGHT_UP, written) == 1

        await until(caught_up, "the copy has all", seconds=READY_SECONDS_MAX)
        await rig.value("DROP SUBSCRIPTION follower", at=there)
        await rig.value(sequences_of_the_runbook(), at=there)


NOT_COPIED = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'"
FLUSHED = "SELECT pg_current_wal_flush_lsn()::text"
CAUGHT_UP = "SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn >= $1::text::pg_lsn"


def sequences_of_the_runbook() -> str:
    """The statement that sets them, as an operator finds it."""
    section = re.search(
        r"^## The database has moved\n.*?^```sql\n(.*?)^```",
        (ROOT / "docs" / "runbook.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert section is not None
    return section[1]


MOVE_CELLS = (
    StandbyPromoted(),
    StandbyInTheUrl(),
    PrimarySilent(),
    DumpRestored(),
    DumpRestoredFarAbove(),
    DumpRestoredFarBelow(),
    LogicalCopy(),
)
