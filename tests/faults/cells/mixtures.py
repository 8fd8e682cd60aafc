"""Relays that differ: in what they carry, in the versions they know, in the names they use."""

from __future__ import annotations

import asyncio
import signal

from tests.faults.cell import Cell
from tests.faults.rig import Rig
from tests.faults.tables import (
    CONTINUES,
    FLAKY,
    PLAIN,
    RENAMED_TRANSACTIONAL,
    TRANSACTIONAL,
    UNORDERED,
    USUAL,
)


class DifferentRelays(Cell):
    """No relay carries all handlers; each is killed now and then."""

    async def play(self, rig: Rig) -> None:
        for carried in ((TRANSACTIONAL, PLAIN), (PLAIN, UNORDERED, CONTINUES), (FLAKY, TRANSACTIONAL)):
            await rig.start_relay(carried=carried)
        await rig.start_writers()
        async for number in rig.beats():
            if number % 3 == 1:
                seat = rig.any_relay()
                await rig.lives(seat)
                await rig.kill(seat)


class DifferentVersions(Cell):
    """Old relays meet events of a newer version while new ones come up; then the old ones go."""

    async def play(self, rig: Rig) -> None:
        old = [await rig.start_relay() for _ in range(2)]
        await rig.start_writers(share=0.5)
        await rig.start_relay({"FAULTS_EVENT_VERSION": "2"})
        await rig.start_writers({"FAULTS_EVENT_VERSION": "2"}, share=0.5)
        async for number in rig.beats():
            if number % 3 == 1:
                await rig.kill(rig.any_relay())
        await asyncio.gather(*(seat.close() for seat in old))


class RenamedHandler(Cell):
    """A handler gets another name while relays that know the old one are still at work, and die."""

    async def play(self, rig: Rig) -> None:
        rig.names[TRANSACTIONAL.handler] = [TRANSACTIONAL.handler, RENAMED_TRANSACTIONAL]
        others = tuple(each for each in USUAL if each is not TRANSACTIONAL)
        old = [await rig.start_relay() for _ in range(2)]
        await rig.start_writers()
        async for number in rig.beats():
            if number in (2, 3):
                await rig.start_relay({"FAULTS_RENAMED": "1"}, carried=others, names=[RENAMED_TRANSACTIONAL])
            elif number in (4, 5):
                relays = await rig.relays_of(old[number - 4].pid)
                await old[number - 4].close(signal.SIGKILL)
                await rig.watch_takeover(relays)


MIXTURE_CELLS = (DifferentRelays(), DifferentVersions(), RenamedHandler())
