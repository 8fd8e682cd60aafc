"""Serving: the steps of a shift, all at once, until it is told to stop (R1, R11, R12)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.cancelling import raise_failure
from outbox_kernel.infrastructure.relay.limits import ANSWER_SECONDS_MAX, RETRY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from outbox_kernel.infrastructure.relay.shift import Shift
    from outbox_kernel.infrastructure.waiting import Signal

_log = logging.getLogger("outbox.relay")


@attrs.define(eq=False)
class Serving:
    """One shift of a relay that serves."""

    shift: Shift
    others: list[Callable[[], Coroutine[object, object, None]]]
    """What goes on beside the shift's own steps, and mends itself: the listener, upkeep."""
    stopping: Signal
    _is_over: bool = False

    async def serve(self) -> None:
        """Serve until told to stop or cancelled, then release what is in hand; raise what else ends the shift."""
        shift = self.shift
        steps = (
            *(shift.read, shift.deliver, shift.write, shift.watch, shift.keep_balance),
            shift.tell_pauses,
        )
        working = [asyncio.create_task(self._again(step), name=f"outbox-{step.__name__}") for step in steps]
        beside: list[asyncio.Task[Any]] = [
            asyncio.create_task(each(), name=f"outbox-{each.__qualname__}") for each in self.others
        ]
        beside.append(asyncio.create_task(self.stopping.wait(), name="outbox-stop"))
        try:
            done, _ = await asyncio.wait([*working, *beside], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                raise_failure(task)
        except asyncio.CancelledError:
            self.stopping.set()  # whatever becomes of the release: no other shift begins
            await self._release(working, beside)
            raise
        except BaseException:
            shift.begin_nothing_more()
            await self._end_steps(working, beside)
            raise
        await self._release(working, beside)

    async def _release(self, working: list[asyncio.Task[Any]], beside: list[asyncio.Task[Any]]) -> None:
        """Release what is in hand; cancelled meanwhile, without any grace, but with what has ended by then."""

        async def release() -> None:
            await self._end_steps(working, beside)
            await self.shift.release(self.shift.settings.grace_seconds)

        releasing = asyncio.create_task(release(), name="outbox-release")
        try:
            await asyncio.shield(releasing)
        except asyncio.CancelledError:
            self.shift.hurry()
            await releasing
            raise

    async def _end_steps(self, working: list[asyncio.Task[Any]], beside: list[asyncio.Task[Any]]) -> None:
        """Let each step end: what a statement has done whose answer nobody hears would be nobody's."""
        self._is_over = True
        self.shift.wake_up()
        self.shift.to_write.set()
        self.shift.to_watch.set()
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


@attrs.define
class Rests:
    """How long each is, and what is said of it: each reason once, until a shift begins again."""

    have_begun: bool = False
    """Whether there was a shift before them."""
    _failures: int = 0
    _told: str = ""

    def note_begun(self) -> None:
        """Take note that a shift has begun: the database is there."""
        self.have_begun, self._told = True, ""

    def after(self, error: BaseException, lasted_seconds: float) -> float:
        """Return how long to rest after a shift that has ended so."""
        self._failures = 0 if lasted_seconds > RETRY_SECONDS[-1] else self._failures + 1
        seconds = RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS) - 1)]
        reason = str(error)
        _log.log(
            logging.DEBUG if reason == self._told else logging.WARNING,
            "%s; the relay lets go of what it had in hand, and reads its cursors anew in %g s",
            *(reason, seconds),
            extra={"action": "relay.shift.ended", "delay_seconds": seconds},
        )
        self._told = reason
        return seconds
