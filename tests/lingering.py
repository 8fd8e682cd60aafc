"""Work for measured processes that end at different times."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.relay.meter import Meter


async def linger(_: Meter, over: asyncio.Event, *, until_told_by: str) -> dict[str, Any]:
    """Work on, when one is told to end, until a pipe says so too."""
    await over.wait()
    if until_told_by:
        await asyncio.to_thread(Path(until_told_by).read_text)
    return {}


async def leave(_: Meter, over: asyncio.Event) -> dict[str, Any]:
    """End at once, without a report."""
    raise SystemExit(0)
