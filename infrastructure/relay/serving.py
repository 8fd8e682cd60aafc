"""Serving: all steps of a shift at once, each again and again, until it is told to stop (R1, R11, R12)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from outbox_kernel.infrastructure.relay.shift import Shift

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
    """One shift of a relay that serves."""

    shift: Shift
    others: list[Callable[[], Coroutine[object, object, None]]]
    """What goes on beside the shift's own steps, and mends itself: the listener, upkeep."""
    stopping: asyncio.Event
    grace_seconds: float
    _is_over: bool = False

    async def serve(self) -> None:
        """Serve until told to stop or cancelled, then release what is in hand; raise what else ends the shift."""
        shift = self.shift
        steps = (
            *(shift.read, shift.deliver, shift.write, shift.watch, shift.keep_balance),
            shift.tell_pauses,
        )
        working = [asyncio.create_task(self._again(step), name=f"outbox-{step.__name__}") for step in steps]
        beside = [asyncio.create_task(each(), name=f"outbox-{each.__qualname__}") for each in self.others]
        beside.append(asyncio.create_task(_wait(self.stopping), name="outbox-stop"))
        try:
            done, _ = await asyncio.wait([*working, *beside], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                _raise_failure(task)
        except asyncio.CancelledError:
            self.stopping.set()  # whatever becomes of the release: no other shift begins
            await self._release(working, beside)
            raise
        except BaseException:
            shift.begin_nothing_more()
            await self._end_steps(working, beside)
            raise
        await self._release(working, beside)

    async def _release(self, working: list[asyncio.Task[None]], beside: list[asyncio.Task[None]]) -> None:
        """Release what is in hand; cancelled meanwhile, without any grace, but with what has ended by then."""

        async def release() -> None:
            await self._end_steps(working, beside)
            await self.shift.release(self.grace_seconds)

        releasing = asyncio.create_task(release(), name="outbox-release")
        try:
            await asyncio.shield(releasing)
        except asyncio.CancelledError:
            self.shift.hurry()
            await releasing
            raise

    async def _end_steps(self, working: list[asyncio.Task[None]], beside: list[asyncio.Task[None]]) -> None:
        """Let each step end: what a statement has done whose answer nobody hears would be nobody's."""
        self._is_over = True
        self.shift.wake_up()
        self.shift.changed.set()
        self.shift.to_balance.set()
        self.shift.pauses_changed.set()
        try:
            await asyncio.wait(working, timeout=ANSWER_SECONDS_MAX)
        finally:
            for task in (*working, *beside):
                task.cancel()
            await asyncio.wait([*working, *beside])

    async def _again(self, step: Callable[[], Awaitable[None]]) -> None:
        while not self._is_over:
            await step()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def _raise_failure(task: asyncio.Task[None]) -> None:
    # A cancellation of one of these would pass for one of the whole relay, which ends without a word.
    if task.cancelled():
        raise CancelledByOthers(f"the relay's task {task.get_name()}")
    task.result()
