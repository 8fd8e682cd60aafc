"""Waiting for something, but not for ever."""

from __future__ import annotations

import asyncio


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait until an event is set, or so much time has gone; return whether it is set."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            return await event.wait()
    except TimeoutError:
        return False
