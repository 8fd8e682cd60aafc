"""Measured processes, seen from the one that measures: started, told, heard out, and joined whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.errors import InfrastructureError

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Callable

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "benchmarks.relay.child")
# No measurement goes without news for so long.
SILENCE_SECONDS_MAX = 120.0
MESSAGE_BYTES_MAX = 16 * 1024 * 1024


class MeasurementFailed(InfrastructureError):
    """A measured process ended early or fell silent; what it said of that is on standard error."""


@attrs.define(eq=False)
class Child:
    """One measured process, and what it has said."""

    process: Process
    on_news: Callable[[], None]
    listening: asyncio.Task[None] = attrs.field(init=False)
    ready: bool = False
    marked: int = 0
    last_mark_ns: int = 0
    cpu_seconds: float = 0.0
    """What it had used by then."""
    report: dict[str, Any] | None = None
    ended: bool = False

    def __attrs_post_init__(self) -> None:
        """Begin to listen to it."""
        self.listening = asyncio.create_task(self._listen())

    def tell(self, message: object) -> None:
        """Write it a line."""
        if self.process.stdin:
            self.process.stdin.write(f"{json.dumps(message)}\n".encode())

    def tell_no_more(self) -> None:
        """Let it end."""
        if self.process.stdin:
            self.process.stdin.close()

    async def how_it_ended(self) -> str:
        """Say it in a sentence."""
        code = await self.process.wait()
        return (
            f"a measured process ended with code {code} before all was measured, "
            f"with {self.marked} events marked; what it has to say of that is on standard error"
        )

    async def _listen(self) -> None:
        """Take in what it says until it ends."""
        if self.process.stdout:
            async for line in self.process.stdout:
                self._take(json.loads(line))
        self.ended = True
        self.on_news()

    def _take(self, message: dict[str, Any]) -> None:
        self.ready = self.ready or "ready" in message
        self.marked += message.get("marked", 0)
        self.last_mark_ns = message.get("at_ns", self.last_mark_ns)
        self.cpu_seconds = message.get("cpu_seconds", self.cpu_seconds)
        self.report = message.get("report", self.report)
        self.on_news()


@attrs.define(eq=False)
class Children:
    """Some measured processes that work together."""

    found: list[Child] = attrs.Factory(list)
    _news: asyncio.Event = attrs.Factory(asyncio.Event)

    @property
    def marked(self) -> int:
        """How many events they have marked."""
        return sum(each.marked for each in self.found)

    @property
    def last_mark_ns(self) -> int:
        """When they last did."""
        return max(each.last_mark_ns for each in self.found)

    async def start(self, task: dict[str, Any]) -> None:
        """Start one more process; it waits for the word to go."""
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MESSAGE_BYTES_MAX,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
        )
        child = Child(process, self._news.set)
        self.found.append(child)
        child.tell(task)

    async def go(self) -> None:
        """Let them begin together."""
        await self.until(lambda: all(each.ready for each in self.found))
        for each in self.found:
            each.tell("go")

    async def until_marked(self, events: int) -> None:
        """Wait until they have marked so many."""
        await self.until(lambda: self.marked >= events)

    async def reports(self) -> list[dict[str, Any]]:
        """Wait for their reports, without ending them."""
        await self.until(lambda: all(each.report for each in self.found))
        return [each.report for each in self.found if each.report]

    async def end(self) -> list[dict[str, Any]]:
        """Let them end, and return their reports."""
        for each in self.found:
            each.tell_no_more()
        return await self.reports()

    async def join(self) -> None:
        """Wait until they are gone."""
        for each in self.found:
            each.tell_no_more()
            await each.listening
            await each.process.wait()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds that depends on what they say."""
        while not holds():
            for each in self.found:
                # One that has said all ends when it is told no more, while others still have to.
                if each.ended and each.report is None:
                    raise MeasurementFailed(await each.how_it_ended())
            self._news.clear()
            try:
                async with asyncio.timeout(SILENCE_SECONDS_MAX):
                    await self._news.wait()
            except TimeoutError:
                raise MeasurementFailed(f"no news for {SILENCE_SECONDS_MAX:g} s") from None


@asynccontextmanager
async def children(*tasks: dict[str, Any]) -> AsyncIterator[Children]:
    """Start processes and let them begin; none of them outlives the block."""
    family = Children()
    try:
        for task in tasks:
            await family.start(task)
        await family.go()
        yield family
    except BaseException:
        for each in family.found:
            if each.process.returncode is None:
                each.process.kill()
        raise
    finally:
        await family.join()
