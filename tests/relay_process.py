"""A relay that may be killed or stopped: `python -m tests.relay_process`, whose handlers do as events say."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
from lagom import Container
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork, session_factory
from outbox_kernel.infrastructure.relay import RelaySettings
from tests.bank import engine_of
from tests.commands import ROOT, environment_with
from tests.domain import journal
from tests.relaying import FromBeginning, handler

LIVES = "it lives"
SECONDS_MAX = 30.0


@attrs.define(eq=False)
class RelayProcess:
    """The process, and what it says: when it lives, and what its handlers begin."""

    process: Process

    async def says(self, line: str) -> None:
        """Wait until it says so; its end would be one, too."""
        assert self.process.stdout is not None
        async with asyncio.timeout(SECONDS_MAX):
            while (said := await self.process.stdout.readline()) != f"{line}\n".encode():
                assert said, f"it ended, and never said {line!r}"

    async def logs(self, words: str) -> None:
        """Wait until a line of its log has these words."""
        assert self.process.stderr is not None
        async with asyncio.timeout(SECONDS_MAX):
            while words.encode() not in (line := await self.process.stderr.readline()):
                assert line, f"it ended, and never logged {words!r}"

    def let_go_on(self) -> None:
        """Let a handler that waits go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go on\n")

    async def ended(self) -> int:
        """Return with what it ended."""
        return await self.process.wait()


@asynccontextmanager
async def relay_process(url: str, *handlers: str, **settings: str) -> AsyncIterator[RelayProcess]:
    """A relay with handlers of these names, which lives; killed at the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.relay_process", *handlers),
        cwd=ROOT,
        env=environment_with(DATABASE_URL=url, **settings),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )
    relay = RelayProcess(process)
    try:
        await relay.says(LIVES)
        yield relay
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def acting(name: str, sessions: async_sessionmaker[AsyncSession]) -> Any:
    """A handler that does what the event's words say: `kill` whom, `wait` for leave, `commit`, `fail`."""

    async def act(event: Any) -> None:
        say(f"{name} begins {event.what}")
        words = event.what.split()
        if "kill" in words and name in words:
            os.kill(os.getpid(), signal.SIGKILL)
        if "wait" in words:
            await asyncio.to_thread(sys.stdin.readline)
        if "fail" in words:
            raise ValueError("as the event says")
        if "commit" in words:
            async with SqlAlchemyUnitOfWork(sessions) as uow:
                await uow.session.execute(insert(journal).values(line=f"{name}: {event.what}"))
                await uow.commit()

    return handler(name, act)


async def serve() -> None:
    """Relay all of the log until it is told to stop, or killed."""
    engine = engine_of(os.environ["DATABASE_URL"])
    sessions = session_factory(engine)
    handlers = [acting(name, sessions) for name in sys.argv[1:]]
    relay = FromBeginning(engine, Container(), handlers=handlers, settings=RelaySettings.from_environment())
    serving = asyncio.create_task(relay.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, relay.stop)
    await relay.subscribed.wait()
    say(LIVES)
    await serving
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(serve())
