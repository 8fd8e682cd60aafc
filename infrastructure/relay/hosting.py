"""A relay within a program that serves something else: it begins with it, its death is seen, it ends with it (R11)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.relay.serving import CancelledByOthers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from outbox_kernel.infrastructure.relay.relay import OutboxRelay

_log = logging.getLogger("outbox.relay")


class Hosted:
    """One life of a relay; `on_end` is called with the reason should it end before its host does."""

    def __init__(self, relay: OutboxRelay, on_end: Callable[[BaseException], object] | None = None) -> None:
        self._relay = relay
        self._on_end = on_end
        self._task: asyncio.Task[None] | None = None
        self.ended: BaseException | None = None
        """Why it has ended by itself: only a restart of the process mends that."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Deliver while the block runs."""
        await self.begin()
        try:
            yield
        finally:
            await self.end()

    async def begin(self) -> None:
        """Return once it delivers, or raise why it cannot."""
        task = self._task = asyncio.create_task(self._relay.run(), name="outbox-relay")
        subscribed = asyncio.create_task(self._relay.subscribed.wait())
        try:
            await asyncio.wait([task, subscribed], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.end()
            raise
        finally:
            subscribed.cancel()
        if task.done():
            raise _reason(task)
        task.add_done_callback(self._tell_end)

    async def end(self) -> None:
        """Give back what is in hand; cancelled while it waits for that, have it ended at once."""
        task = self._task
        if task is None or task.done():
            return
        task.remove_done_callback(self._tell_end)
        task.add_done_callback(_tell_trouble)
        task.cancel()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise

    def _tell_end(self, task: asyncio.Task[None]) -> None:
        self.ended = _reason(task)
        _log.critical(
            "the relay in this process has ended: start the process again",
            exc_info=self.ended,
            extra={"action": "relay.ended"},
        )
        if self._on_end is not None:
            self._on_end(self.ended)


def _tell_trouble(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error(
            "the relay in this process has not ended well: others take over its work",
            exc_info=error,
            extra={"action": "relay.ended_badly"},
        )


def _reason(task: asyncio.Task[None]) -> BaseException:
    # It ends without a word where other code has cancelled or stopped it.
    error = None if task.cancelled() else task.exception()
    return error or CancelledByOthers("the relay")
