"""Live: one look now and then for all browsers that listen, and a word to each when something has happened."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.dashboard.limits import (
    LISTENERS_MAX,
    LOOK_SECONDS,
    QUIET_SECONDS_MAX,
    RETRY_MILLISECONDS,
    STREAM_SECONDS_MAX,
)
from outbox_kernel.infrastructure.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

_log = logging.getLogger("outbox.dashboard")


class Live:
    """Tells its listeners that something is new; while nobody listens, nobody looks."""

    def __init__(
        self,
        look: Callable[[], Awaitable[object]],
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._look = look
        self._pause = pause
        self._new = asyncio.Event()
        self._number = 0
        self._seen: object = None
        self._is_closed = False
        self._looking: asyncio.Task[None] | None = None
        self.listeners = 0

    @property
    def is_full(self) -> bool:
        """Whether nobody more may listen."""
        return self.listeners >= LISTENERS_MAX

    async def listen(self) -> AsyncGenerator[str, None]:
        """Yield what is sent to one browser, as server-sent events have it."""
        self.listeners += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_on(), name="outbox-dashboard-live")
        try:
            yield f"retry: {RETRY_MILLISECONDS}\n\n"
            # The first word comes at once: nobody knows what has happened since the page was made.
            number, until = -1, asyncio.get_running_loop().time() + STREAM_SECONDS_MAX
            while not self._is_closed and asyncio.get_running_loop().time() < until:
                await self._wait(number)
                number = self._number
                if not self._is_closed:
                    yield f"event: tick\ndata: {number}\n\n"
        finally:
            self.listeners -= 1
            if not self.listeners and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    def close(self) -> None:
        """End all streams, for good: the server stops."""
        self._is_closed = True
        self._tell()

    def _tell(self) -> None:
        """Wake whoever waits; who waits from now on waits for the next time."""
        self._number += 1
        self._new.set()
        self._new = asyncio.Event()

    async def _wait(self, number: int) -> None:
        if self._number != number:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET_SECONDS_MAX):
                await self._new.wait()

    async def _look_on(self) -> None:
        while True:
            try:
                seen = await self._look()
            except InfrastructureError as error:
                # Whoever loads a page is told why; here the next look finds it back.
                _log.debug(
                    "live pages wait for the database: %s", error, extra={"action": "dashboard.live.waits"}
                )
            except Exception:  # noqa: BLE001 - whatever it is, pages that say they are live must go on
                _log.exception("live pages could not look", extra={"action": "dashboard.live.failed"})
            else:
                if seen != self._seen:
                    self._seen = seen
                    self._tell()
            await self._pause(LOOK_SECONDS)
