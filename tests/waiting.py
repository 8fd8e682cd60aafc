"""The one place where a test asks again and again: a database tells nobody when a row has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

STEP_SECONDS = 0.01
DEADLINE_SECONDS = 30.0


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it is so, or fail at the deadline."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await holds():  # noqa: ASYNC110 - as said above
            await asyncio.sleep(STEP_SECONDS)
