"""Relays that join and leave in order, again and again."""

from __future__ import annotations

import asyncio

from tests.faults.cell import Cell
from tests.faults.fleet import Seat
from tests.faults.rig import HELD, Rig

# Slow enough that many come and go while there is writing.
SHARE_OF_RATE = 0.25


class RelaysComeAndGo(Cell):
    """One joins, another leaves by SIGTERM, as long as there is writing, and leaves nothing to be taken over."""

    async def play(self, rig: Rig) -> None:
        await rig.start_relays()
        await rig.start_writers({"FAULTS_RATE": str(rig.scale.rate / 2 * SHARE_OF_RATE)})
        while rig.fleet.writing:
            rig.injected += 2
            await asyncio.gather(rig.start_relay(), self._leave(rig, rig.any_relay()))

    @staticmethod
    async def _leave(rig: Rig, seat: Seat) -> None:
        relays = await rig.relays_of(seat.pid)
        if code := await seat.close():
            rig.remarks.append(f"a relay that was asked to leave has ended with {code}")
        if held := await rig.value(HELD, relays):
            rig.remarks.append(f"a relay that has left still holds {held}")


FLEET_CELLS = (RelaysComeAndGo(),)
