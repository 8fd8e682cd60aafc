"""A server that restarts, connections that end or run out, a pooler, and strangers with long transactions."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import asyncpg

from tests.bouncer import PgBouncer, missing_pgbouncer
from tests.faults.cell import Cell
from tests.faults.clock import TooLate, pause, until
from tests.faults.rig import RIG, TROUBLE, Rig
from tests.faults.server import CRASH, FAST, IMMEDIATE, pgbouncer_before


class ServerRestart(Cell):
    """The server stops in an orderly way, in a hurry, and by a kill, and comes back."""

    async def injure(self, rig: Rig) -> None:
        if rig.injected % 2 == 1:
            how = (FAST, IMMEDIATE, CRASH)[rig.injected // 2 % 3]
            await asyncio.to_thread(rig.server.restart, how)


class BackendsTerminated(Cell):
    """Every connection of the application is ended by the server, one by one."""

    async def injure(self, rig: Rig) -> None:
        async with rig.connection() as connection:
            rows = await connection.fetch(BACKENDS)
            for row in rig.random.sample(rows, len(rows)):
                await connection.execute("SELECT pg_terminate_backend($1)", row["pid"])
                await pause(rig.random.random() * 0.05)


BACKENDS = f"""
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND application_name <> '{RIG}' AND backend_type = 'client backend'
"""


class DeafListeners(Cell):
    """The connections that listen are cut."""

    async def injure(self, rig: Rig) -> None:
        await rig.value(
            f"SELECT count(pg_terminate_backend(pid)) FROM ({BACKENDS}) AS backend "
            "JOIN pg_stat_activity USING (pid) WHERE query ~ '^(LISTEN|NOTIFY)'"
        )


class PoolExhausted(Cell):
    """A pool of one connection for all handlers, and now and then a server that has none left."""

    async def play(self, rig: Rig) -> None:
        await rig.start_relays({"FAULTS_POOL": "1", "OUTBOX_CONCURRENCY": "20"})
        await rig.start_writers()
        async for _ in rig.beats():
            await self.injure(rig)

    async def injure(self, rig: Rig) -> None:
        taken: list[asyncpg.Connection] = []
        try:
            with suppress(*TROUBLE):
                while True:
                    # By the rig's name, or it is one of these that is ended below.
                    stranger = asyncpg.connect(rig.url, timeout=2, server_settings={"application_name": RIG})
                    taken.append(await stranger)
            for _ in range(2):
                await self._end_somebody(taken[0])
                await pause(0.3)
        finally:
            for connection in taken:
                connection.terminate()

    async def check(self, rig: Rig) -> None:
        await rig.nobody_is_charged("a server without connections")

    @staticmethod
    async def _end_somebody(connection: asyncpg.Connection) -> None:
        """End a connection of the application: there is none to be had instead."""
        await connection.execute(
            f"SELECT pg_terminate_backend(pid) FROM ({BACKENDS}) AS backend ORDER BY random() LIMIT 1"
        )


class Pooler(Cell):
    """PgBouncer in transaction mode between relays and server, and killed now and then."""

    def missing(self) -> str | None:
        """Name the package."""
        return missing_pgbouncer()

    async def play(self, rig: Rig) -> None:
        with pgbouncer_before(rig.server) as pooler:
            url = pooler.url_of(rig.database)
            await rig.start_relays({"DATABASE_URL": url, "OUTBOX_LISTEN_URL": rig.url})
            await rig.start_writers({"DATABASE_URL": url})
            async for number in rig.beats():
                if number % 3 == 1:
                    pooler.kill()
                    pooler.start()
                elif number % 3 == 2:
                    await rig.kill(rig.any_relay())
            await rig.written()
            await rig.settled()
            await asyncio.gather(*(seat.close() for seat in rig.fleet.relays))


class LostAnswers(Cell):
    """Connections go while claims are under way, which the server then commits: nobody hears what was claimed."""

    def missing(self) -> str | None:
        """Name the package."""
        return missing_pgbouncer()

    async def play(self, rig: Rig) -> None:
        with pgbouncer_before(rig.server) as pooler:
            await rig.start_relays(
                {"DATABASE_URL": pooler.url_of(rig.database), "OUTBOX_LISTEN_URL": rig.url}
            )
            await rig.start_writers()
            async for _ in rig.beats():
                await self._cut_off_a_claim(rig, pooler)
            await rig.written()
            await rig.settled()
            await asyncio.gather(*(seat.close() for seat in rig.fleet.relays))

    @staticmethod
    async def _cut_off_a_claim(rig: Rig, pooler: PgBouncer) -> None:
        """Hold the leases, so that claims wait for them; cut the connections; let the claims go on."""
        async with rig.connection() as connection, connection.transaction():
            await connection.execute("SELECT FROM outbox_relays FOR UPDATE")
            blocker = await connection.fetchval("SELECT pg_backend_pid()")

            async def claiming() -> bool:
                return bool(await rig.number(CLAIMS_WAITING_FOR, blocker))

            with suppress(TooLate):
                await until(claiming, "a claim waits", seconds=rig.scale.lease_seconds / 3)
            pooler.kill()
        pooler.start()


CLAIMS_WAITING_FOR = """
SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)) AND query LIKE '%WITH%candidate%'
"""


class StrangersTransaction(Cell):
    """Somebody writes and does not commit, here and in another database, from before the first event on."""

    async def play(self, rig: Rig) -> None:
        elsewhere = await asyncpg.connect(rig.server.url)
        try:
            async with rig.connection() as here:
                await self._write_and_stay(here, "INSERT INTO faults_strangers VALUES ('open')")
                await here.execute("SELECT count(*) FROM outbox_events")
                await self._write_and_stay(elsewhere, "CREATE TEMPORARY TABLE faults_elsewhere (note text)")
                await rig.start_relays()
                await rig.start_writers()
                await rig.written()
                rig.injected = 2
                if not await rig.settled():
                    rig.remarks.append("a stranger's open transaction holds deliveries up")
        finally:
            elsewhere.terminate()

    @staticmethod
    async def _write_and_stay(connection: asyncpg.Connection, statement: str) -> None:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.execute(statement)


DATABASE_CELLS = (
    ServerRestart(),
    BackendsTerminated(),
    DeafListeners(),
    PoolExhausted(),
    Pooler(),
    LostAnswers(),
    StrangersTransaction(),
)
