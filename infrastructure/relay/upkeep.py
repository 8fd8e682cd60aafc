"""Upkeep: what each relay does for the outbox as a whole, now and then (R2, R3, R13)."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outbox_kernel.infrastructure.relay.claiming import Claimer
    from outbox_kernel.infrastructure.relay.line import Line
    from outbox_kernel.infrastructure.relay.renaming import Renaming
    from outbox_kernel.infrastructure.relay.retention import Retention
    from outbox_kernel.infrastructure.relay.roster import Roster
    from outbox_kernel.infrastructure.relay.store import Store

_log = logging.getLogger("outbox.relay")

SWEEP_SECONDS = 60.0
# An event that has waited for this long in the first pass waits for something that does not come.
OLD_SECONDS = 60.0


@attrs.define(eq=False)
class Upkeep:
    """Takes over from the dead, moves names, purges, and says what has waited for too long."""

    store: Store
    line: Line
    renaming: Renaming
    claimer: Claimer
    retention: Retention
    pause_seconds: float
    wake: Callable[[], None]
    roster: Roster | None = None
    """Of a relay that claims no events, whose claims therefore tell it of no changed subscription."""
    _warn_at: float = 0.0
    _sweep_at: float = 0.0

    async def step(self) -> None:
        """Do all of it once, and rest."""
        now = time.monotonic()
        # The sweep reads all that is open, so it has its reason: a lease has run out, or a while has passed.
        if now >= self._sweep_at or await self.store.any_expired(self.line):
            self._sweep_at = now + SWEEP_SECONDS
            await self.take_over()
        await self.renaming.step(self.line)
        if self.roster is not None:
            self.roster.subscribe(*await self.store.subscriptions(self.line))
        self._watch_oldest(await self.claimer.raise_front(self.line))
        await self._purge_and_rest()

    async def _purge_and_rest(self) -> None:
        """Purge until all that is old is gone, but no more than half of the time, and rest."""
        until = time.monotonic() + self.pause_seconds
        while (began := time.monotonic()) < until:
            if not await self.retention.step(self.line):
                break
            await asyncio.sleep(time.monotonic() - began)
        await asyncio.sleep(max(0.0, until - time.monotonic()))

    async def take_over(self) -> None:
        """End leases that have run out, and free what they held."""
        events, deliveries = await self.store.take_over(self.line)
        if events or deliveries:
            _log.warning(
                "took over from a relay that vanished: %d of its events, %d of its deliveries",
                *(events, len(deliveries)),
                extra={"events": events, "deliveries": len(deliveries)},
            )
            self.claimer.look_everywhere()
            self.wake()
        for each in deliveries:
            if each["status"] == "dead":
                self._tell_death(each)

    def _tell_death(self, delivery: Mapping[str, object]) -> None:
        _log.critical(
            "handler %s is dead for event %s: retry or skip it: it kills the process",
            *(delivery["handler"], delivery["event_id"]),
            extra={
                "handler": delivery["handler"],
                "event_id": str(delivery["event_id"]),
                "position": delivery["position"],
                "reason": "kills the process",
            },
        )

    def _watch_oldest(self, age_seconds: float | None) -> None:
        if age_seconds is None or age_seconds < OLD_SECONDS or time.monotonic() < self._warn_at:
            return
        self._warn_at = time.monotonic() + OLD_SECONDS
        _log.warning(
            "the oldest event that is not delivered has waited for %.0f s: see `outbox doctor`", age_seconds
        )
