"""Waiting for something, but not for ever."""

from __future__ import annotations

import asyncio


class Signal:
    """An event of one loop, for which one may wait for so long and no longer.

    asyncio's own with a time-out around it takes three times as many calls, several times for each event that a relay
    delivers by itself.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: set[asyncio.Future[bool]] = set()

    def is_set(self) -> bool:
        """Whether it has been set, and not been cleared since."""
        return self._is_set

    def set(self) -> None:
        """Let go on who waits."""
        if not self._is_set:
            self._is_set = True
            for waiter in self._waiters:
                _tell(waiter, is_set=True)

    def clear(self) -> None:
        """Let wait who comes from now on."""
        self._is_set = False

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set, or so much time has gone; return whether it is set."""
        if self._is_set:
            return True
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiters.add(waiter)
        timer = None if seconds is None else loop.call_later(max(0.0, seconds), _give_up, waiter)
        try:
            return await waiter
        finally:
            self._waiters.discard(waiter)
            if timer is not None:
                timer.cancel()


def _tell(waiter: asyncio.Future[bool], *, is_set: bool) -> None:
    if not waiter.done():
        waiter.set_result(is_set)


def _give_up(waiter: asyncio.Future[bool]) -> None:
    _tell(waiter, is_set=False)
