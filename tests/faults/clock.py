"""Waiting in the rig: for a moment between two questions, or until an answer is yes, always with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

BEAT_SECONDS = 0.05


class TooLate(Exception):
    """What was waited for did not happen in time."""


async def pause(seconds: float) -> None:
    """Let others work for a moment; nothing depends on how long it is."""
    if seconds > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.Event().wait()


async def until(
    holds: Callable[[], Awaitable[bool]], what: str, *, seconds: float, beat_seconds: float = BEAT_SECONDS
) -> float:
    """Ask again and again until the answer is yes; return how long that took."""
    begun = time.monotonic()
    while not await holds():
        if time.monotonic() - begun > seconds:
            raise TooLate(f"{what}: not within {seconds:g} s")
        await pause(beat_seconds)
    return time.monotonic() - begun
