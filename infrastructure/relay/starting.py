"""Beginning a shift: connections, a lease, subscriptions, cursors; and all that works with them (R2, R3, R12)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import attrs

from outbox_kernel.infrastructure.outbox.logged_event import forget_decoders
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.outbox.sealing.reading import KeysInHand
from outbox_kernel.infrastructure.outbox.sql import cursors, leases
from outbox_kernel.infrastructure.outbox.sql import subscriptions as sql
from outbox_kernel.infrastructure.outbox.sql.deliveries import GIVE_BACK_DELIVERIES
from outbox_kernel.infrastructure.outbox.sql.named import arrays
from outbox_kernel.infrastructure.outbox.sql.receipts import DATABASE
from outbox_kernel.infrastructure.relay.bisection import Batching
from outbox_kernel.infrastructure.relay.cursor import Server
from outbox_kernel.infrastructure.relay.lease import Lease
from outbox_kernel.infrastructure.relay.limits import SLOW_SECONDS, WINDOW_MESSAGES, WRITERS_LOOK_SECONDS
from outbox_kernel.infrastructure.relay.listener import EVERYTHING, SAY
from outbox_kernel.infrastructure.relay.log import Log
from outbox_kernel.infrastructure.relay.outages import BrokerOutage
from outbox_kernel.infrastructure.relay.publishing import Sending
from outbox_kernel.infrastructure.relay.rate import Bounds
from outbox_kernel.infrastructure.relay.run import Handling
from outbox_kernel.infrastructure.relay.shift import Shift
from outbox_kernel.infrastructure.relay.subscriber import Subscriber
from outbox_kernel.infrastructure.relay.subscription import (
    CarriedPublisher,
    Renaming,
    Subscription,
    check_sources,
    subscriptions_now,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy.ext.asyncio import AsyncEngine

    from outbox_kernel.infrastructure.master_keys import MasterKeys
    from outbox_kernel.infrastructure.outbox.own_connection import Step
    from outbox_kernel.infrastructure.relay.metrics import Observing
    from outbox_kernel.infrastructure.relay.settings import RelaySettings
    from outbox_kernel.infrastructure.relay.subscription import CarriedAny
    from outbox_kernel.infrastructure.waiting import Signal

_log = logging.getLogger("outbox.relay")


class Lines(NamedTuple):
    """Those of a shift: what was in one when it broke nobody knows, so it is not opened a second time (R12)."""

    read: Line
    write: Line
    control: Line


@attrs.frozen
class Ground:
    """What all shifts of a relay have in common."""

    engine: AsyncEngine
    settings: RelaySettings
    schema: str | None
    now: datetime | None
    master_keys: MasterKeys | None
    observing: Observing
    stopping: Signal

    def log(self, line: Line, lease: Lease) -> Log:
        """Return the log as it is seen over a connection, under a lease."""
        return Log(line, lease, self.schema, self.now, KeysInHand(self.master_keys))


@attrs.frozen
class Assembly:
    """What a shift is made of."""

    ground: Ground
    carried: Sequence[CarriedAny]
    lines: Lines
    lease: Lease
    takes_all: bool
    is_start: bool
    """Whether the relay begins: what was retired while it served, by an operator or a newer name, stays so."""

    async def shift(self) -> Shift:
        """Subscribe, and return all that works under the lease."""
        forget_decoders()
        control = self.ground.log(self.lines.control, self.lease)
        server = await _server(control, self.ground.stopping)
        subscriptions, revision = await self._subscribe(control, server.number)
        database = str((await self.lines.control.fetch(DATABASE))[0][0])
        await self.ground.observing.begin(control)
        shift = Shift(self.lines, control, self.ground.settings, server, revision, self.takes_all)
        for each in self.carried:
            shift.subscribers[each.name] = self._subscriber(each, subscriptions[each.name], shift, database)
        return shift

    def _subscriber(
        self, carried: CarriedAny, subscription: Subscription, shift: Shift, database: str
    ) -> Subscriber:
        settings, observed = self.ground.settings, self.ground.observing.of(carried)
        doing: Handling | Sending
        if isinstance(carried, CarriedPublisher):
            outage = BrokerOutage(carried.name, carried.outlet, shift.pauses_changed)
            shift.outages.append(outage)
            doing = Sending(carried, outage, *observed)
            bounds = Bounds(WINDOW_MESSAGES, settings.batch_size_max)
        else:
            kind = Handling if carried.batch is None else Batching
            doing = kind(carried, shift.deliveries.log, database)
            doing.counts, doing.spans = observed
            bounds = Bounds.of(carried.registration, settings)
        found = Subscriber(
            *(carried, subscription, doing, shift.deliveries),
            *(shift.changed, shift.to_write, shift.to_read, bounds),
        )
        if isinstance(doing, Sending):
            found.stand_still()  # until it is known that its broker is there
        return found

    async def register(self) -> None:
        """Begin to live, hold nothing of former epochs any more, and say so."""
        control, settings = self.ground.log(self.lines.control, self.lease), self.ground.settings
        registered = control.step(
            leases.REGISTER,
            lease_seconds=settings.lease_seconds,
            process_id=os.getpid(),
            host=socket.gethostname(),
            code_version=settings.code_version,
            abilities=json.dumps({each.name: each.abilities for each in self.carried}),
            patterns=json.dumps({each.name: each.patterns for each in self.carried}),
            takes_events=not self.takes_all,
        )
        former = attrs.evolve(control, lease=Lease(self.lease.relay, self.lease.epoch - 1))
        await self.lines.control.transact(
            [registered, *_given_back(former), (SAY, (settings.channel, EVERYTHING))]
        )

    async def _subscribe(self, control: Log, server: int) -> tuple[Mapping[str, Subscription], int]:
        """Say what this relay carries: in one transaction, so that nobody sees a subscription without its cursors."""
        found, _ = await subscriptions_now(control)
        check_sources(self.carried, found)
        carried = sorted(self.carried, key=lambda each: each.name)
        names = [each.name for each in carried]
        facts = attrgetter("name", "kind", "ordered", "source", "is_bounded", "renamed_from")
        subscribed = [(*facts(each), json.dumps(each.patterns)) for each in carried]
        columns = ("names", "kinds", "ordered", "sources", "bounded", "former", "patterns")
        subscribe = control.step(sql.SUBSCRIBE, is_start=self.is_start, **arrays(columns, subscribed))
        new = {"names": names, "from_beginning": [each.from_beginning for each in carried]}
        drop, add = (
            control.step(cursors.DROP_CURSORS),
            control.step(cursors.ADD_CURSORS, server=server, **new),
        )
        renaming = Renaming.of(control, self.carried)
        await self.lines.control.transact([drop, subscribe, *renaming.steps(), add])
        await renaming.move_receipts()
        return await subscriptions_now(control)


async def resign(ground: Ground, lease: Lease) -> None:
    """Live no longer, hold nothing, and say so: others go on at once."""
    line = Line(ground.engine)
    log = ground.log(line, lease)
    try:
        say = SAY, (ground.settings.channel, EVERYTHING)
        await line.transact([log.step(leases.RESIGN), *_given_back(log), say])
    finally:
        await line.close()


def _given_back(log: Log) -> list[Step]:
    """Give back what was held up to an epoch that is over; only after the lease's row says so."""
    return [log.step(each) for each in (cursors.GIVE_BACK_CURSORS, GIVE_BACK_DELIVERIES)]


async def _server(control: Log, stopping: Signal) -> Server:
    """Return the server whose transaction ids count; where it is a new one, wait for who writes now."""
    while True:
        [found] = await control.run(cursors.SERVER)
        if found["identifier"] == found["here"]:
            return Server(found["number"], found["floor"])
        is_first = found["identifier"] is None
        [highest] = await control.run(cursors.HIGHEST_OF_OTHERS if is_first else cursors.HIGHEST)
        floor = highest["position"]
        if floor:
            await _until_done(control, set((await control.run(cursors.WRITERS))[0]["found"]), stopping)
        await control.line.transact(
            [control.step(cursors.LOCK_SERVERS), control.step(cursors.ADD_SERVER, floor=floor)]
        )


async def _until_done(control: Log, writers: set[str], stopping: Signal) -> None:
    """Wait for transactions that may yet fill a gap in the log; told to stop meanwhile, end without having begun."""
    looks = 0
    while writers:
        if looks == int(SLOW_SECONDS / WRITERS_LOOK_SECONDS):
            _log.warning(
                "the relay waits for who writes events on a server new to it (virtualtransaction in pg_locks): %s",
                ", ".join(sorted(writers)),
                extra={"action": "relay.start.waits"},
            )
        looks += 1
        if await stopping.wait(WRITERS_LOOK_SECONDS):
            raise asyncio.CancelledError
        [found] = await control.run(cursors.SERVER)
        if found["identifier"] == found["here"]:
            return  # another relay has come before those who write now, and need not wait for them
        writers &= set((await control.run(cursors.WRITERS))[0]["found"])
