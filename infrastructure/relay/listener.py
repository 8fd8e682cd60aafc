"""The listener: hears of commits at once, and proves by round trips that it hears (R10)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from uuid import uuid4

import attrs

from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.postgres.connections import TROUBLE, connect
from outbox_kernel.infrastructure.postgres.pinning import pin
from outbox_kernel.infrastructure.relay.limits import LISTENER_ANSWER_SECONDS_MAX, PROBE_EVERY_SECONDS
from outbox_kernel.infrastructure.telemetry.counting import RelayCounts
from outbox_kernel.infrastructure.waiting import Signal
from outbox_kernel.kernel.retry import EXPONENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.ext.asyncio import AsyncEngine

    from outbox_kernel.infrastructure.outbox.own_connection import Line

_log = logging.getLogger("outbox.relay")

PROBE = "probe:"
# What is said of a commit is empty; an operator who mends says that there is more to look at than new events.
EVERYTHING = "deliveries"
SAY = "SELECT pg_notify($1, $2)"


class Deaf(InfrastructureError):
    """What we say on the channel does not come back to us."""


@attrs.define(eq=False)
class Listener:
    """Listens on a connection that does nothing else; while it is deaf, the relay polls.

    What it says to prove that it hears goes over another connection, to where commits are told of: a pooler hands a
    word back to the connection that said it, and a server that nobody writes to hears itself very well.
    """

    engine: AsyncEngine
    channel: str
    on_heard: Callable[[str], None]
    says: Line
    counts: RelayCounts = attrs.Factory(RelayCounts)
    """Which know whether it hears."""
    _me: str = attrs.Factory(lambda: PROBE + uuid4().hex)
    _answered: Signal = attrs.Factory(Signal)

    async def run(self) -> None:
        """Listen until cancelled, through every loss of the connection."""
        failures, self.counts.hears = 0, False
        while True:
            try:
                await self._listen()
            except TROUBLE as error:
                failures = 1 if self.counts.hears else failures + 1
                self.counts.hears = False
                _log.log(
                    logging.WARNING if failures == 1 else logging.DEBUG,
                    "the relay does not hear of commits and polls meanwhile: %s",
                    error,
                    extra={"action": "relay.deaf"},
                )
            await asyncio.sleep(EXPONENTIAL.delay_after(max(1, min(failures, 4))) or 0)

    async def _listen(self) -> None:
        connection = await connect(self.engine.sync_engine)
        try:
            await pin(connection, LISTENER_ANSWER_SECONDS_MAX)
            gone = Signal()
            connection.add_termination_listener(lambda _: gone.set())
            async with asyncio.timeout(LISTENER_ANSWER_SECONDS_MAX):
                await connection.add_listener(self.channel, self._hear)
            while True:
                await self._prove()
                if not self.counts.hears:
                    self.counts.hears = True
                    self.on_heard(EVERYTHING)  # that was committed meanwhile
                if await gone.wait(PROBE_EVERY_SECONDS):
                    raise Deaf("the server closed the listening connection")
        finally:
            connection.terminate()

    async def _prove(self) -> None:
        self._answered.clear()
        await self.says.fetch(SAY, self.channel, self._me)
        if not await self._answered.wait(LISTENER_ANSWER_SECONDS_MAX):
            raise Deaf(
                f"nothing said on channel {self.channel!r} arrives where the relay listens (a pooler in transaction "
                "mode has no LISTEN: point OUTBOX_LISTEN_URL at the server itself, and at the same database)"
            )

    def _hear(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        if payload == self._me:
            self._answered.set()
        elif not str(payload).startswith(PROBE):
            self.on_heard(str(payload))
