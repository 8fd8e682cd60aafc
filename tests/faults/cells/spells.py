"""Handlers that block, exit, hang, are cancelled, die after their commit, or kill their process every time."""

from __future__ import annotations

import signal
from typing import ClassVar

from tests.faults.cell import Cell
from tests.faults.clock import until
from tests.faults.rig import Rig
from tests.faults.tables import TRANSACTIONAL, UNORDERED, UNRULY, USUAL, Promise

EXIT_STANDSTILL = 70


class SpellCell(Cell):
    """Some events carry a spell for the one handler that obeys."""

    carried: ClassVar[tuple[Promise, ...]] = (*USUAL, UNRULY)
    spells: ClassVar[dict[str, int]]
    settings: ClassVar[dict[str, str]] = {}

    async def play(self, rig: Rig) -> None:
        # Two writers, each with these.
        spells = ",".join(f"{name}={count}" for name, count in self.spells.items())
        await rig.start_relays(self.settings)
        await rig.start_writers({"FAULTS_SPELLS": spells})
        await rig.written()
        rig.injected = 2 * sum(self.spells.values())


class BlocksTheLoop(SpellCell):
    """The event loop stands still for longer than the lease, but not for ever."""

    spells: ClassVar[dict[str, int]] = {"block": 2}
    settings: ClassVar[dict[str, str]] = {"FAULTS_BLOCK": "3"}


class StandsStill(SpellCell):
    """The event loop never moves again: the process must end by itself, with exit code 70."""

    quick = False
    spells: ClassVar[dict[str, int]] = {"standstill": 1}

    async def check(self, rig: Rig) -> None:
        exits = [code for seat in rig.fleet.relays for code in seat.exits]
        if EXIT_STANDSTILL not in exits:
            rig.remarks.append(f"no relay has ended with {EXIT_STANDSTILL}: {exits}")


class ExitsTheProcess(SpellCell):
    """`os._exit` in the middle of a run."""

    spells: ClassVar[dict[str, int]] = {"exit": 2}


class Hangs(SpellCell):
    """A run without an end, which heeds its cancellation or does not, or leaves a thread behind that never ends."""

    quick = False
    spells: ClassVar[dict[str, int]] = {"hang": 2, "deaf": 1, "thread": 1}


class Cancels(SpellCell):
    """CancelledError and SystemExit from a handler's own coroutine, before and after its commit."""

    spells: ClassVar[dict[str, int]] = {"cancel": 5, "systemexit": 5, "commit-cancel": 5}

    async def check(self, rig: Rig) -> None:
        if any(seat.exits for seat in rig.fleet.relays):
            rig.remarks.append("a relay has ended for what a handler raised")


class DiesAfterItsCommit(SpellCell):
    """The commit, and then the end of the process, before anybody is told."""

    spells: ClassVar[dict[str, int]] = {"commit-exit": 2}


class Poison(SpellCell):
    """An event that kills its process every time: dead the third time it did so alone, and nobody else charged."""

    quick = False
    spells: ClassVar[dict[str, int]] = {"poison": 1}

    async def check(self, rig: Rig) -> None:
        charged = await rig.value(
            "SELECT count(*) FROM outbox_deliveries WHERE attempts > 0 AND handler = ANY ($1)",
            [TRANSACTIONAL.handler, UNORDERED.handler],
        )
        if charged:
            rig.remarks.append(f"{charged} deliveries of other handlers are charged for the crashes")


class KilledWhileBurying(SpellCell):
    """The relay that finds a poisoned event dead is killed before it has written that."""

    quick = False
    spells: ClassVar[dict[str, int]] = {"poison": 1}

    async def play(self, rig: Rig) -> None:
        await super().play(rig)

        async def nearly_dead() -> bool:
            return bool(await rig.number(NEARLY_DEAD))

        await until(nearly_dead, "an event has killed relays", seconds=rig.scale.settle_seconds)
        async with rig.connection() as connection, connection.transaction():
            await connection.execute(LOCK_POISONED)
            blocker = await connection.fetchval("SELECT pg_backend_pid()")
            buriers: list[int] = []

            async def burying() -> bool:
                async with rig.connection() as asking:
                    buriers[:] = [row["pid"] for row in await asking.fetch(BURYING, blocker)]
                return bool(buriers)

            await until(burying, "a relay finds the event dead", seconds=rig.scale.settle_seconds)
            for seat in rig.fleet.relays:
                seat.send(signal.SIGKILL)
            for pid in buriers:
                await rig.value("SELECT pg_terminate_backend($1)", pid)


# It has killed its relay for the last time, and that one's lease runs on for a while.
NEARLY_DEAD = "SELECT count(*) FROM outbox_deliveries WHERE takeovers >= 4 AND alone AND status = 'leased'"
# Whoever takes it over needs its row; nobody else is left who would.
LOCK_POISONED = """
SELECT FROM outbox_deliveries WHERE takeovers >= 4 AND alone AND status = 'leased' FOR UPDATE
"""
BURYING = """
SELECT pid FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)) AND query LIKE '%kills the process%'
"""

SPELL_CELLS = (
    BlocksTheLoop(),
    StandsStill(),
    ExitsTheProcess(),
    Hangs(),
    Cancels(),
    DiesAfterItsCommit(),
    Poison(),
    KilledWhileBurying(),
)
