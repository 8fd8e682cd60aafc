"""A measured process: `python -m benchmarks.relay.child`, told by its standard input what to be.

One line says what, a second says go; when the input ends, so does the process. So it never outlives the one
that measures.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from json import loads
from typing import TYPE_CHECKING, Any

from benchmarks.relay.meter import Meter, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# As in outbox_kernel.infrastructure.cli.serving, of which a floor imports nothing.
GARBAGE_COUNTED_MAX = 20_000


async def _main() -> None:
    told = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(partial(asyncio.StreamReaderProtocol, told), sys.stdin)
    task = loads(await told.readline())
    work = _named(task.pop("kind"))
    # As the commands that serve do.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_COUNTED_MAX)
    say(ready=True)
    if not await told.readline():
        return
    meter, over = Meter(), asyncio.Event()
    watching = asyncio.create_task(_until_over(told, over))
    found = await work(meter, over, **task)
    say(report={**meter.report(), **found})
    await watching


def _named(kind: str) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Import no more than that: a floor would otherwise start as slowly as what stands on it."""
    module, _, function = kind.rpartition(".")
    home = module if "." in module else f"benchmarks.relay.{module}"
    work: Callable[..., Awaitable[dict[str, Any]]] = getattr(import_module(home), function)
    return work


async def _until_over(told: asyncio.StreamReader, over: asyncio.Event) -> None:
    await told.read()
    over.set()


def run() -> None:
    """Run on the event loop that a service would choose."""
    loop_factory = import_module("uvloop").new_event_loop if find_spec("uvloop") else None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(_main())


if __name__ == "__main__":
    run()
