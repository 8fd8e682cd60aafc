"""Wake-up: tell the relays after the commit, off the commit's path (R10).

NOTIFY inside the writing transaction would make all commits of the server stand in one line. So it is sent after the
commit, on a connection of its own: at once after a quiet moment, together with those that follow in a burst.
What is not told, because the process ends or the database is gone, a relay finds at its next poll.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import attrs
from sqlalchemy import event

from outbox_kernel.infrastructure.connections import TROUBLE, connect

if TYPE_CHECKING:
    import asyncpg
    from sqlalchemy import Engine

_log = logging.getLogger("outbox.wake_up")

BURST_SECONDS = 0.005
# Whoever waits for all tasks to end, as some do when they shut down, waits for this one as well.
LINGER_SECONDS = 10.0
ANSWER_SECONDS_MAX = 1.0


@attrs.define(eq=False)
class Bell:
    """Rings the relays of one database from one event loop; a burst of rings is one."""

    engine: Engine
    channel: str
    _rung: asyncio.Event = attrs.Factory(asyncio.Event)
    _task: asyncio.Task[None] | None = None
    _connection: asyncpg.Connection | None = None
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
                    await self._tell()
                    await asyncio.sleep(BURST_SECONDS)
                await self._close()
        except GeneratorExit:
            # Its loop was closed over it, so there is nobody left to tell by, and no connection to close.
            self._connection = None
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
            _log.info("relays are not told of a commit and find it at their next poll: %s", error)
        except BaseException:  # cancelled in the middle: the farewell says it
            self._rung.set()
            self._hang_up()
            raise
        finally:
            self._telling = False

    async def _notify(self) -> None:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self.engine)
        await self._connection.execute(f'NOTIFY "{self.channel}"', timeout=ANSWER_SECONDS_MAX)

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def _say_farewell(self) -> None:
        """Tell what is untold, as when a program ends with its last commit, and hang up."""
        if self._rung.is_set():
            await self._tell()
        await self._close()

    async def _close(self) -> None:
        if self._connection is not None:
            try:
                await self._connection.close(timeout=ANSWER_SECONDS_MAX)
            except TROUBLE:
                self._hang_up()


# By the ids of an engine and a loop, which are theirs alone while a bell holds both. Nothing holds a bell but its task:
# once that has hung up, engine and loop are free to go.
_bells: WeakValueDictionary[tuple[int, int], Bell] = WeakValueDictionary()


def wake_relays(engine: Engine, channel: str) -> None:
    """Ring the bell of this engine in the running event loop; without a loop there is none to ring from."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    if engine.driver != "asyncpg":
        return
    engine = _root_of(engine)
    key = (id(engine), id(loop))
    bell = _bells.get(key)
    if bell is None:
        bell = _bells[key] = Bell(engine, channel)
        _on_dispose(engine)
    bell.ring()


def _root_of(engine: Engine) -> Engine:
    """Return the engine whose pool it is: `execution_options` makes another one at each call."""
    while (root := getattr(engine, "_proxied", None)) is not None:
        engine = root
    return engine


def _on_dispose(engine: Engine) -> None:
    """Have the bells silenced with the engine, and nothing else of it slowed."""
    # Any listener of an engine makes SQLAlchemy ask at each statement who listens, which is a thirtieth of a commit.
    # This one is called without being asked for; what the engine's class says of all engines has to show through.
    heard = vars(engine).get("_has_events", False)
    event.listen(engine, "engine_disposed", _silence)
    if not heard:
        del engine._has_events


def _silence(engine: Engine) -> None:
    root = _root_of(engine)
    for known in _bells.valuerefs():
        bell = known()
        if bell is not None and bell.engine is root:
            bell.silence()
