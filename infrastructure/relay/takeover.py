"""Takeover: leases that have run out end, and what they held is free; each relay looks now and then (R2, R3, R13)."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.outbox.sql import leases
from outbox_kernel.infrastructure.outbox.sql.cursors import DROP_CURSORS, TAKE_OVER_CURSORS
from outbox_kernel.infrastructure.outbox.sql.deliveries import TAKE_OVER_DELIVERIES
from outbox_kernel.infrastructure.postgres.connections import TROUBLE
from outbox_kernel.infrastructure.relay.limits import SWEEP_SECONDS
from outbox_kernel.infrastructure.relay.listener import EVERYTHING, SAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from outbox_kernel.infrastructure.relay.log import Log
    from outbox_kernel.infrastructure.relay.retention import Retention
    from outbox_kernel.infrastructure.relay.subscription import Renaming

_log = logging.getLogger("outbox.relay")


@attrs.define(eq=False)
class Upkeep:
    """Takes over from the dead, moves names, and purges."""

    log: Log
    renaming: Renaming
    retention: Retention
    pause_seconds: float
    channel: str
    on_freed: Callable[[], None]
    _sweep_at: float = 0.0

    async def run(self) -> None:
        """Do all of it again and again; a database that is gone is waited for."""
        while True:
            try:
                await self.step()
                await self.purge()
            except TROUBLE as error:
                _log.debug("upkeep waits for the database: %s", error, extra={"action": "relay.upkeep.waits"})
            await asyncio.sleep(self.pause_seconds)

    async def step(self) -> None:
        """Do all of it once, but for the purge."""
        now = time.monotonic()
        [row] = await self.log.run(leases.ANY_EXPIRED)
        # The sweep reads all that is leased, so it has its reason: a lease has run out, or a while has passed.
        if now >= self._sweep_at or row["found"]:
            self._sweep_at = now + SWEEP_SECONDS
            await self.take_over()
            await self.log.run(DROP_CURSORS)
        await self.renaming.step()

    async def purge(self) -> None:
        """Purge until all that is old is gone, but no more than half of the time, and not beyond the next upkeep."""
        until = time.monotonic() + self.pause_seconds
        while (began := time.monotonic()) < until:
            if not await self.retention.step():
                return
            await asyncio.sleep(time.monotonic() - began)

    async def take_over(self) -> None:
        """End leases that have run out, and free what they held."""
        expired, cursors, deliveries = await self.log.line.transact(
            [self.log.step(each) for each in (leases.EXPIRE, TAKE_OVER_CURSORS, TAKE_OVER_DELIVERIES)]
        )
        for each in deliveries:
            if each["status"] == "dead":
                self._tell_death(each)
        if expired or cursors or deliveries:
            _log.warning(
                "took over from a relay that vanished: %d cursors, %d deliveries",
                *(len(cursors), len(deliveries)),
                extra={"action": "relay.took_over", "cursors": len(cursors), "deliveries": len(deliveries)},
            )
            self.on_freed()
            await self.log.line.fetch(SAY, self.channel, EVERYTHING)

    def _tell_death(self, delivery: Any) -> None:
        handler, event_id = delivery["handler"], str(delivery["event_id"])
        about = {"handler": handler, "event_id": event_id, "position": delivery["position"]}
        _log.critical(
            "handler %s is dead for event %s: retry or skip it: it kills the process",
            *(handler, event_id),
            extra={"action": "handler.dead", **about, "reason": "kills the process"},
        )
