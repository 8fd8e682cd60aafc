"""A server that is there and refuses: it has no connection left, or the application's role may not write."""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar

import asyncpg

from tests.faults.cell import Cell
from tests.faults.cells.database import BACKENDS
from tests.faults.clock import TooLate, until
from tests.faults.rig import LIVE, RIG, TROUBLE, Rig

TERMINATE = f"SELECT count(pg_terminate_backend(pid)) FROM ({BACKENDS}) AS backend"
TAKEN_SECONDS_MAX = 60.0


async def until_nobody_lives(rig: Rig, connection: asyncpg.Connection, *, seconds: float) -> None:
    """Wait until every lease has run out, which a relay that cannot write does not keep from happening."""

    async def none_lives() -> bool:
        return bool(await connection.fetchval(LIVE) == 0)

    with suppress(TooLate):
        await until(none_lives, "no lease is left", seconds=seconds)


class ConnectionsTaken(Cell):
    """Strangers hold every connection that the server has, until no relay has a lease any more."""

    async def injure(self, rig: Rig) -> None:
        if rig.injected % 3 != 1:
            return
        taken: list[asyncpg.Connection] = []
        try:
            async with rig.connection() as mine:

                async def none_lives() -> bool:
                    # Again, since a connection that has ended may give its place back a little later.
                    await self._take_all(rig, mine, taken)
                    return bool(await mine.fetchval(LIVE) == 0)

                try:
                    await until(none_lives, "no lease is left", seconds=2 * rig.scale.moved_seconds_max)
                except TooLate:
                    rig.remarks.append("relays without a connection have kept their leases")
        finally:
            for connection in taken:
                connection.terminate()
        await rig.goes_on()

    @staticmethod
    async def _take_all(rig: Rig, mine: asyncpg.Connection, taken: list[asyncpg.Connection]) -> None:
        """End the application's connections, and be quicker than it in opening new ones."""

        async def all_taken() -> bool:
            await mine.execute(TERMINATE)
            with suppress(*TROUBLE):
                while True:
                    stranger = asyncpg.connect(rig.url, server_settings={"application_name": RIG})
                    taken.append(await stranger)
            return not await mine.fetch(BACKENDS)

        await until(all_taken, "strangers hold every connection", seconds=TAKEN_SECONDS_MAX)

    async def check(self, rig: Rig) -> None:
        await rig.nobody_is_charged("a server without connections")


class HandlersCutOff(Cell):
    """The server ends the connections on which handlers are at work, and no others."""

    async def injure(self, rig: Rig) -> None:
        async with rig.connection() as connection, connection.transaction():
            await connection.execute("LOCK TABLE faults_effects IN SHARE MODE")
            blocker = await connection.fetchval("SELECT pg_backend_pid()")

            async def cut_off() -> bool:
                return bool(await rig.number(CUT_OFF_BEHIND, blocker))

            with suppress(TooLate):  # nothing is left to be handled
                await until(cut_off, "handlers are cut off", seconds=rig.scale.lease_seconds)

    async def check(self, rig: Rig) -> None:
        await rig.nobody_is_charged("a connection that was lost")


CUT_OFF_BEHIND = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))
"""


class RoleCell(Cell):
    """Relays and writers connect as a role that has a setting of its own."""

    role: ClassVar[str]

    async def play(self, rig: Rig) -> None:
        await rig.value(f"CREATE ROLE {self.role} LOGIN SUPERUSER")
        await self.prepare(rig)
        url = rig.server.url_of(rig.database, user=self.role)
        await rig.start_relays({"DATABASE_URL": url})
        await rig.start_writers({"DATABASE_URL": url})
        async for _ in rig.beats():
            await self.injure(rig)

    async def prepare(self, rig: Rig) -> None:
        """Give the role its setting, if that is there from the beginning."""

    async def leave(self, rig: Rig) -> None:
        await rig.value(f"DROP ROLE IF EXISTS {self.role}")


class SerializableRole(RoleCell):
    """Its transactions are serializable unless they say otherwise; now and then a relay is killed."""

    role: ClassVar[str] = "faults_serializable"

    async def prepare(self, rig: Rig) -> None:
        await rig.value(f"ALTER ROLE {self.role} SET default_transaction_isolation = 'serializable'")

    async def injure(self, rig: Rig) -> None:
        if rig.injected % 3 == 1:
            seat = rig.any_relay()
            await rig.lives(seat)
            await rig.kill(seat)

    async def check(self, rig: Rig) -> None:
        await rig.nobody_is_charged("transactions that could not be serialised")


class ReadOnlyRole(RoleCell):
    """For a while its transactions may not write, unless they say otherwise."""

    role: ClassVar[str] = "faults_read_only"

    async def injure(self, rig: Rig) -> None:
        if rig.injected % 3 != 1:
            return
        async with rig.connection() as connection:
            await self._set(connection, "SET default_transaction_read_only = on")
            try:
                # Long enough for all to meet it; sessions that say what they need keep their leases meanwhile.
                await until_nobody_lives(rig, connection, seconds=2 * rig.scale.lease_seconds)
            finally:
                await self._set(connection, "RESET default_transaction_read_only")
        await rig.goes_on()

    async def _set(self, connection: asyncpg.Connection, what: str) -> None:
        """Change the role, and end its sessions, since each has read its settings at its beginning."""
        await connection.execute(f"ALTER ROLE {self.role} {what}")
        await connection.execute(TERMINATE)

    async def check(self, rig: Rig) -> None:
        await rig.nobody_is_charged("a role that may not write")


REFUSAL_CELLS = (ConnectionsTaken(), HandlersCutOff(), SerializableRole(), ReadOnlyRole())
