"""The bell that an event loop rings by: for engines whose driver awaits, asyncpg and psycopg's asynchronous half."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.outbox.limits import (
    ANSWER_SECONDS_MAX,
    BURST_SECONDS,
    COMMIT_TURNS,
    LINGER_SECONDS,
)
from outbox_kernel.infrastructure.postgres.connections import TROUBLE, connect

if TYPE_CHECKING:
    import asyncpg
    from sqlalchemy import Engine

_log = logging.getLogger("outbox.wake_up")


class Line(Protocol):
    """A connection of a bell's own, whichever driver made it."""

    def is_closed(self) -> bool:
        """Whether nothing can be said on it any more."""

    async def say(self, statement: str) -> None:
        """Execute, or raise some of `TROUBLE` within the deadline."""

    async def close(self) -> None:
        """Take leave of the server."""

    def drop(self) -> None:
        """Close without a word."""


@attrs.frozen
class _AsyncpgLine:
    connection: asyncpg.Connection

    def is_closed(self) -> bool:
        return self.connection.is_closed()

    async def say(self, statement: str) -> None:
        await self.connection.execute(statement, timeout=ANSWER_SECONDS_MAX)

    async def close(self) -> None:
        await self.connection.close(timeout=ANSWER_SECONDS_MAX)

    def drop(self) -> None:
        self.connection.terminate()


@attrs.frozen
class _PsycopgLine:
    connection: Any  # which is psycopg's, and that is imported by who uses it

    def is_closed(self) -> bool:
        return bool(self.connection.closed)

    async def say(self, statement: str) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                if not self.connection.autocommit:
                    await self.connection.set_autocommit(True)
                await self.connection.execute(statement)
        except self.connection.Error as error:
            raise DatabaseUnreachable(f"the connection to tell relays by broke: {error}") from error

    async def close(self) -> None:
        self.drop()

    def drop(self) -> None:
        self.connection.pgconn.finish()


def _line_by(connection: Any) -> Line:
    return _PsycopgLine(connection) if hasattr(connection, "pgconn") else _AsyncpgLine(connection)


@attrs.define(eq=False)
class LoopBell:
    """Rings the relays of one database from one event loop; a burst of rings is one."""

    engine: Engine
    channel: str
    _rung: asyncio.Event = attrs.Factory(asyncio.Event)
    _task: asyncio.Task[None] | None = None
    _line: Line | None = None
    _telling: bool = False
    _leaving: bool = False

    def ring(self) -> None:
        """Have the relays told soon."""
        self._rung.set()
        self._leaving = False
        if self._task is None or self._task.done():
            # Its own context: it outlives the request that rang first.
            self._task = asyncio.get_running_loop().create_task(
                self._tell_all(), name="outbox-wake-up", context=contextvars.Context()
            )

    def silence(self) -> None:
        """Let go of the connection once what is untold is told: the engine is disposed of."""
        self._leaving = True
        if self._telling or self._rung.is_set():
            return  # a program may end with a commit, and dispose of its engine in between
        self._hang_up()
        if self._task is not None:
            self._task.cancel()

    async def _tell_all(self) -> None:
        try:
            # Once more, since it may have been rung while it hung up.
            while await self._is_rung():
                while await self._is_rung():
                    await self._let_commit_end()
                    await self._tell()
                    await asyncio.sleep(BURST_SECONDS)
                await self._close()
        except GeneratorExit:
            # Its loop was closed over it, so there is nobody left to tell by, and no connection to close.
            self._line = None
            self._rung.clear()
            raise
        finally:
            await self._say_farewell()

    async def _is_rung(self) -> bool:
        try:
            async with asyncio.timeout(0 if self._leaving else LINGER_SECONDS):
                return await self._rung.wait()
        except TimeoutError:
            return False

    async def _let_commit_end(self) -> None:
        for _ in range(COMMIT_TURNS):
            await asyncio.sleep(0)

    async def _tell(self) -> None:
        self._rung.clear()
        self._telling = True
        try:
            try:
                await self._notify()
            except TROUBLE:
                # The server has gone and come back since the last time: a new connection may do.
                self._hang_up()
                await self._notify()
        except TROUBLE as error:
            self._hang_up()
            _log.info(
                "relays are not told of a commit and find it at their next poll: %s",
                error,
                extra={"action": "wake_up.missed"},
            )
        except GeneratorExit:  # its loop is closed: nobody can hang up, nor say it later
            raise
        except BaseException:  # cancelled in the middle: the farewell says it
            self._rung.set()
            self._hang_up()
            raise
        finally:
            self._telling = False

    async def _notify(self) -> None:
        if self._line is None or self._line.is_closed():
            self._line = _line_by(await connect(self.engine))
        await self._line.say(f'NOTIFY "{self.channel}"')

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.drop()

    async def _say_farewell(self) -> None:
        """Tell what is untold, as when a program ends with its last commit, and hang up."""
        if self._rung.is_set():
            await self._tell()
        await self._close()

    async def _close(self) -> None:
        if self._line is not None:
            try:
                await self._line.close()
            except TROUBLE:
                self._hang_up()
