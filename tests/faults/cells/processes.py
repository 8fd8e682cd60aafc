"""Relays that are killed, stopped, and show another time of day."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import Any
from uuid import UUID

import asyncpg

from tests.faults.cell import Cell
from tests.faults.clock import TooLate, pause, until
from tests.faults.fleet import Seat
from tests.faults.rig import HELD, Rig
from tests.faults.server import fake_clock_library


class KilledRelays(Cell):
    """SIGKILL, one relay at a time."""

    async def injure(self, rig: Rig) -> None:
        seat = rig.any_relay()
        await rig.lives(seat)
        await rig.kill(seat)


class KilledTogether(Cell):
    """SIGKILL to all relays at once."""

    async def injure(self, rig: Rig) -> None:
        if rig.injected % 3 != 1:
            return
        await asyncio.gather(*(rig.lives(seat) for seat in rig.fleet.relays))
        await asyncio.gather(*(rig.kill(seat) for seat in rig.fleet.relays))


class KilledWhileMoving(Cell):
    """SIGKILL while progress is being written, held up by a lock; half of the time its backend goes as well."""

    async def injure(self, rig: Rig) -> None:
        seat = rig.any_relay()
        await rig.lives(seat)
        relays = await rig.relays_of(seat.pid)
        async with rig.connection() as connection, connection.transaction():
            # What a relay writes is fenced by the row of its lease.
            await connection.execute(LOCK_A_LEASE, relays)
            try:
                await self._kill_at_the_lock(rig, seat, await connection.fetchval("SELECT pg_backend_pid()"))
            except TooLate:
                return  # it had nothing to write
        await rig.watch_takeover(relays)

    async def _kill_at_the_lock(self, rig: Rig, seat: Seat, blocker: int) -> None:
        backends: list[Any] = []

        async def moving() -> bool:
            async with rig.connection() as asking:
                backends[:] = [row["pid"] for row in await asking.fetch(MOVING, blocker)]
            return bool(backends)

        await until(moving, f"the relay of {seat.log.name} moves", seconds=3)
        seat.send(signal.SIGKILL)
        if rig.random.random() < 0.5:
            for backend in backends:
                await rig.value("SELECT pg_terminate_backend($1)", backend)


LOCK_A_LEASE = "SELECT FROM outbox_relays WHERE id = ANY ($1) FOR UPDATE"
LOCK_A_RUN = "SELECT handler FROM outbox_deliveries WHERE status = 'leased' FOR UPDATE SKIP LOCKED"
WAITING_FOR = "SELECT pid, application_name FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))"
MOVING = "SELECT pid FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)) AND query LIKE '%outbox_progress%'"


class StoppedRelays(Cell):
    """SIGSTOP until others have taken over, then SIGCONT: what it held is no longer its own."""

    async def injure(self, rig: Rig) -> None:
        seat = rig.any_relay()
        await rig.lives(seat)
        relays = await rig.relays_of(seat.pid)
        seat.send(signal.SIGSTOP)
        try:
            await self._until_it_has_lapsed(rig, seat, relays)
        finally:
            seat.send(signal.SIGCONT)

    async def _until_it_has_lapsed(self, rig: Rig, seat: Seat, relays: list[UUID]) -> None:
        async def lapsed() -> bool:
            return await rig.number("SELECT count(*) FROM outbox_relays WHERE id = ANY ($1)", relays) == 0

        await until(lapsed, f"the lease of {seat.log.name} ends", seconds=2 * rig.scale.moved_seconds_max)

    async def check(self, rig: Rig) -> None:
        if any(seat.exits for seat in rig.fleet.relays):
            rig.remarks.append("a relay that was stopped for a while has ended when it went on")


class StoppedInATransaction(StoppedRelays):
    """SIGSTOP between two statements of a transaction: its locks must not keep others from taking over."""

    async def injure(self, rig: Rig) -> None:
        async with rig.connection() as connection, connection.transaction():
            try:
                await self._lock_a_run(connection)
                seat = await self._waiting(rig, await connection.fetchval("SELECT pg_backend_pid()"))
            except TooLate:
                return  # nobody settles anything just now, or has just done so
            relays = await rig.relays_of(seat.pid)
            seat.send(signal.SIGSTOP)
        try:
            await self._until_it_has_lapsed(rig, seat, relays)
            await rig.watch_takeover(relays)
        finally:
            seat.send(signal.SIGCONT)

    @staticmethod
    async def _lock_a_run(connection: asyncpg.Connection) -> None:
        async def locked() -> bool:
            return bool(await connection.fetch(LOCK_A_RUN))

        await until(locked, "a delivery runs", seconds=5, beat_seconds=0.005)

    @staticmethod
    async def _waiting(rig: Rig, blocker: int) -> Seat:
        names: list[str] = []

        async def settling() -> bool:
            async with rig.connection() as asking:
                names[:] = [row["application_name"] for row in await asking.fetch(WAITING_FOR, blocker)]
            return bool(names)

        await until(settling, "a relay settles", seconds=3)
        return rig.fleet.relay_named(names[0])


async def waits_for(rig: Rig, connection: asyncpg.Connection, *, seconds: float) -> None:
    """Give a claim the time to come and wait for what a connection has locked; none may come."""
    blocker = await connection.fetchval("SELECT pg_backend_pid()")

    async def waiting() -> bool:
        return bool(await rig.number(f"SELECT count(*) FROM ({WAITING_FOR}) AS waiting", blocker))

    with suppress(TooLate):
        await until(waiting, "a claim waits", seconds=seconds)


class OrderlyStops(Cell):
    """SIGTERM: what is in hand is finished or given back, nothing is left to take over, and the exit code is 0."""

    async def injure(self, rig: Rig) -> None:
        seat = rig.any_relay()
        await rig.lives(seat)
        relays, before = await rig.relays_of(seat.pid), len(seat.exits)
        async with rig.connection() as connection, connection.transaction():
            # Half of the time a claim is under way, held up at the lease.
            if rig.injected % 2:
                await connection.execute("SELECT FROM outbox_relays WHERE id = ANY ($1) FOR UPDATE", relays)
                await waits_for(rig, connection, seconds=rig.scale.lease_seconds / 4)
            seat.send(signal.SIGTERM)
            await pause(rig.random.random() * 0.05)

        async def ended() -> bool:
            return len(seat.exits) > before

        await until(ended, f"the relay of {seat.log.name} stops", seconds=30, beat_seconds=0.01)
        if held := await rig.value(HELD, relays):
            rig.remarks.append(f"a relay that was asked to stop has ended and still holds {held}")

    async def check(self, rig: Rig) -> None:
        exits = [code for seat in rig.fleet.relays for code in seat.exits]
        if set(exits) != {0}:
            rig.remarks.append(f"relays that were asked to stop have ended with {exits}")


class WrongClock(Cell):
    """Each relay an hour or more off, and a session time zone that nobody expects."""

    def missing(self) -> str | None:
        """Name the library."""
        return None if fake_clock_library() else "libfaketime is not installed: apt-get install faketime"

    async def play(self, rig: Rig) -> None:
        await rig.value(f"ALTER DATABASE {rig.database} SET timezone = 'Pacific/Chatham'")
        for number in range(rig.scale.relays):
            await rig.start_relay(self._off_by(("+61m", "-61m", "+25h")[number % 3]))
        await rig.start_writers(self._off_by("-3h"))
        async for _ in rig.beats():
            if rig.injected % 3 == 1:
                seat = rig.any_relay()
                await rig.lives(seat)
                await rig.kill(seat)

    @staticmethod
    def _off_by(offset: str) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(fake_clock_library()),
            "FAKETIME": offset,
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }


PROCESS_CELLS = (
    KilledRelays(),
    KilledTogether(),
    KilledWhileMoving(),
    StoppedRelays(),
    StoppedInATransaction(),
    OrderlyStops(),
    WrongClock(),
)
