"""A handler that does what events tell it: block, exit, hang, be cancelled, die after its commit."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable

import attrs
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from outbox_kernel.kernel import handles
from tests.faults.domain import Counted
from tests.faults.handlers import SOON, commit_effect
from tests.faults.tables import UNRULY

TIMEOUT_SECONDS = 2.0
BLOCK_SECONDS = float(os.environ.get("FAULTS_BLOCK", "3"))
EXIT_CODE = 9
# Counted before the deed, and committed: the deed may be the last thing that this process does.
SPELL = """
INSERT INTO faults_spells AS present VALUES ($1, 1)
ON CONFLICT (event_id) DO UPDATE SET times = present.times + 1 RETURNING times
"""


async def _block() -> None:
    threading.Event().wait(BLOCK_SECONDS)


async def _stand_still() -> None:
    threading.Event().wait()


async def _exit() -> None:
    os._exit(EXIT_CODE)


async def _hang() -> None:
    await asyncio.Event().wait()


async def _hang_deaf() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


async def _hang_in_a_thread() -> None:
    await asyncio.to_thread(threading.Event().wait)


async def _cancel() -> None:
    raise asyncio.CancelledError


async def _system_exit() -> None:
    raise SystemExit(EXIT_CODE)


DEEDS: dict[str, Callable[[], Awaitable[None]]] = {
    "block": _block,
    "standstill": _stand_still,
    "exit": _exit,
    "poison": _exit,
    "hang": _hang,
    "deaf": _hang_deaf,
    "thread": _hang_in_a_thread,
    "cancel": _cancel,
    "systemexit": _system_exit,
}


@handles(Counted, name=UNRULY.handler, retry=SOON, timeout=TIMEOUT_SECONDS)
@attrs.frozen
class Unruly:
    """Obeys a spell the first time, `poison` every time, and else leaves its effect."""

    uow: SqlAlchemyUnitOfWork
    engine: AsyncEngine

    async def handle(self, event: Counted) -> None:
        times = await self._times(event) if event.spell else 0
        obeys = times == 1 or event.spell == "poison"
        if obeys and event.spell in DEEDS:
            await DEEDS[event.spell]()
        await commit_effect(self.uow, UNRULY.handler, event)
        if obeys and event.spell == "commit-exit":
            os._exit(EXIT_CODE)
        if obeys and event.spell == "commit-cancel":
            raise asyncio.CancelledError

    async def _times(self, event: Counted) -> int:
        async with self.engine.begin() as connection:
            answer = await connection.exec_driver_sql(SPELL, (event.event_id,))
            return int(answer.scalar_one())
