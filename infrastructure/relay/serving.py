"""Serving: all steps of a relay at once, each again and again, until it is told to stop (R1, R11, R12)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.postgres.connections import TROUBLE
from outbox_kernel.infrastructure.relay.claiming import LeaseLost
from outbox_kernel.kernel.retry import EXPONENTIAL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outbox_kernel.infrastructure.relay.delivering import Delivering
    from outbox_kernel.infrastructure.relay.keeping import LeaseKeeper
    from outbox_kernel.infrastructure.relay.listening import Listener
    from outbox_kernel.infrastructure.relay.upkeep import Upkeep

_log = logging.getLogger("outbox.relay")

ANSWER_SECONDS_MAX = 1.0


class CancelledByOthers(InfrastructureError):
    """Code of the same process, a handler's maybe, has cancelled what the relay is made of."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was cancelled by other code of this process, so the relay ends, and its supervisor is to start it "
            "again: look for a handler that cancels tasks which are not its own"
        )


@attrs.define(eq=False)
class Serving:
    """One service of a relay, from its first claim until the last run has ended."""

    delivering: Delivering
    upkeep: Upkeep
    keeper: LeaseKeeper
    listener: Listener
    stopping: asyncio.Event
    grace_seconds: float

    async def serve(self) -> None:
        """Serve until told to stop or cancelled; then release what is in hand."""
        tasks = self._tasks()
        self.keeper.start()
        self.delivering.is_kept = True
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                _result_of(task)
        finally:
            self.stopping.set()
            try:
                await self._hear_last_claim()
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                await self.delivering.release(self.grace_seconds)
            finally:
                for task in tasks:
                    task.cancel()
                # However often it is cancelled: a keeper that outlived this would end the process.
                self.delivering.is_kept = False
                await self.keeper.stop()

    async def _hear_last_claim(self) -> None:
        """Wait for the answer to a claim that is under way: unheard, it would hold its events for the whole grace."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS_MAX), self.delivering.claiming:
                pass

    def _tasks(self) -> list[asyncio.Task[object]]:
        work = self.delivering
        steps = (
            work.claim_or_wait,
            work.write,
            work.watch,
            self.upkeep.step,
            work.replace_lost_lease,
            work.tell_pauses,
        )
        tasks: list[asyncio.Task[object]] = [
            asyncio.create_task(self._persist(step), name=f"outbox-{step.__name__}") for step in steps
        ]
        tasks.append(asyncio.create_task(self.listener.run(), name="outbox-listener"))
        tasks.append(asyncio.create_task(self.stopping.wait(), name="outbox-stop"))
        return tasks

    async def _persist(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step; a database that is gone or refuses is waited for."""
        failures = 0
        while not self.stopping.is_set():
            try:
                await step()
                failures = 0
            except LeaseLost:
                self.delivering.tenure.lose()
            except TROUBLE as error:
                failures += 1
                delay = EXPONENTIAL.delay_after(min(failures, 3)) or 0
                _log.warning("%s; the relay tries again", error, extra={"delay_seconds": delay})
                await asyncio.sleep(delay)


def _result_of(task: asyncio.Task[object]) -> None:
    # A cancellation of one of these would pass for one of the whole relay, which ends without a word.
    if task.cancelled():
        raise CancelledByOthers(f"the relay's task {task.get_name()}")
    task.result()
