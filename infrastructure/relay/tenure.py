"""Tenure: the lease under which a relay works, from its registration to its resignation (R3, R11)."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.relay.store import Lease

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from outbox_kernel.infrastructure.relay.line import Line
    from outbox_kernel.infrastructure.relay.pausing import Pause
    from outbox_kernel.infrastructure.relay.roster import CarriedAny
    from outbox_kernel.infrastructure.relay.store import Store


@attrs.define(eq=False)
class Tenure:
    """Holds the lease that is in force; each one that was lost is followed by the next."""

    store: Store
    line: Line
    seconds: float
    code_version: str
    takes_events: bool = True
    """Whether events are claimed under it, and not deliveries alone."""
    lease: Lease = attrs.Factory(Lease)
    lost: asyncio.Event = attrs.Factory(asyncio.Event)
    """Said by whoever finds out; heard by who takes the next lease."""
    in_force: asyncio.Event = attrs.Factory(asyncio.Event)
    _renew_at: float = 0.0

    async def register(self, carried: Collection[CarriedAny]) -> None:
        """Begin to live under the lease, and say what this relay carries."""
        abilities = {each.name: each.abilities for each in carried}
        patterns = {each.name: each.subscribed_to for each in carried}
        who = (os.getpid(), socket.gethostname(), self.code_version, json.dumps(abilities))
        what = (json.dumps(patterns), self.takes_events)
        await self.store.register(self.line, self.lease, self.seconds, (*who, *what))

    async def tell_pauses(self, pauses: Mapping[str, Pause]) -> None:
        """Say which publishers are paused, and why."""
        told = {
            name: {"reason": pause.reason, "since": pause.since.isoformat()} for name, pause in pauses.items()
        }
        await self.store.tell_pauses(self.line, self.lease, json.dumps(told))

    def lose(self) -> None:
        """Say that the lease is lost, or that only the next one can find what was claimed under it."""
        self.in_force.clear()
        self.lost.set()

    def regain(self) -> None:
        """Say that there is a lease again."""
        self.lost.clear()
        self.in_force.set()

    async def renew(self) -> bool:
        """Live on; False if the lease is lost."""
        self._renew_at = time.monotonic() + self.seconds / 3
        return await self.store.renew(self.line, self.lease, self.seconds)

    @property
    def is_renewal_due(self) -> bool:
        """Whether it is time to renew, where no keeper does."""
        return time.monotonic() > self._renew_at

    def move_on(self) -> None:
        """Work under the next lease from now on."""
        self.lease = self.lease.next()

    async def give_back_former(self) -> None:
        """Hold nothing of what was claimed under earlier leases."""
        await self.store.give_back(self.line, self.lease)

    async def resign(self) -> None:
        """Live no longer, and hold nothing."""
        await self.store.resign(self.line, self.lease)
