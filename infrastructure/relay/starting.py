"""Beginning a shift: a lease, the server's floor, subscriptions, cursors; and all that works with them (R2, R3)."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.outbox.sealing.reading import KeysInHand
from outbox_kernel.infrastructure.outbox.sql import cursors, leases
from outbox_kernel.infrastructure.outbox.sql import subscriptions as sql
from outbox_kernel.infrastructure.outbox.sql.deliveries import GIVE_BACK_DELIVERIES
from outbox_kernel.infrastructure.outbox.sql.receipts import DATABASE
from outbox_kernel.infrastructure.relay.batching import Batching
from outbox_kernel.infrastructure.relay.deliveries import Deliveries
from outbox_kernel.infrastructure.relay.handling import Handling
from outbox_kernel.infrastructure.relay.knowing import subscriptions_now
from outbox_kernel.infrastructure.relay.lease import Lease
from outbox_kernel.infrastructure.relay.listening import EVERYTHING, SAY
from outbox_kernel.infrastructure.relay.log import Log
from outbox_kernel.infrastructure.relay.ownership import Ownership
from outbox_kernel.infrastructure.relay.pacing import Bounds
from outbox_kernel.infrastructure.relay.pausing import Pausing
from outbox_kernel.infrastructure.relay.place import Server
from outbox_kernel.infrastructure.relay.progress import Progress
from outbox_kernel.infrastructure.relay.reading import Reading
from outbox_kernel.infrastructure.relay.renaming import Renaming
from outbox_kernel.infrastructure.relay.roster import CarriedPublisher, Subscription, check_sources
from outbox_kernel.infrastructure.relay.rows import forget_decoders
from outbox_kernel.infrastructure.relay.sending import WINDOW, Sending
from outbox_kernel.infrastructure.relay.shift import Shift
from outbox_kernel.infrastructure.relay.subscriber import Subscriber

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from outbox_kernel.infrastructure.master_keys import MasterKeys
    from outbox_kernel.infrastructure.relay.line import Line, Step
    from outbox_kernel.infrastructure.relay.lines import Lines
    from outbox_kernel.infrastructure.relay.observing import Observing
    from outbox_kernel.infrastructure.relay.roster import Carried, CarriedAny
    from outbox_kernel.infrastructure.relay.settings import RelaySettings

WRITERS_LOOK_SECONDS = 0.05


@attrs.frozen
class Signals:
    """What wakes the steps of a shift; each part sets some of them."""

    changed: asyncio.Event = attrs.Factory(asyncio.Event)
    to_read: asyncio.Event = attrs.Factory(asyncio.Event)
    to_deliver: asyncio.Event = attrs.Factory(asyncio.Event)
    pauses_changed: asyncio.Event = attrs.Factory(asyncio.Event)


@attrs.frozen
class Assembly:
    """What a shift is made of."""

    carried: Sequence[CarriedAny]
    lines: Lines
    lease: Lease
    settings: RelaySettings
    schema: str | None
    now: datetime | None
    takes_all: bool
    observing: Observing
    master_keys: MasterKeys | None = None

    async def shift(self) -> Shift:
        """Subscribe, and return all that works under the lease."""
        forget_decoders()
        keys = KeysInHand(self.master_keys)
        control = Log(self.lines.control, self.lease, self.schema, self.now, keys)
        server = await _server(control)
        subscriptions, revision = await self._subscribe(control, server.number)
        database = str((await self.lines.control.fetch(DATABASE))[0][0])
        await self.observing.begin(control)
        signals = Signals()
        subscribers: dict[str, Subscriber] = {}
        deliveries = Deliveries(attrs.evolve(control, line=self.lines.write), subscribers, signals.to_deliver)
        for each in self.carried:
            subscribers[each.name] = self._subscriber(
                each, subscriptions[each.name], deliveries, signals, database
            )
        ownership = Ownership(control, subscribers, self.takes_all, self.settings.channel)
        reading = Reading(attrs.evolve(control, line=self.lines.read), subscribers, server, revision)
        progress = Progress(attrs.evolve(control, line=self.lines.write), subscribers)
        return Shift(
            *(self.lines, subscribers, ownership, reading, progress, deliveries),
            self.settings.poll_interval_seconds,
            self.settings.lease_seconds / 3,
            signals.changed,
            [each.doing.pausing for each in subscribers.values() if isinstance(each.doing, Sending)],
            to_read=signals.to_read,
            to_deliver=signals.to_deliver,
            pauses_changed=signals.pauses_changed,
        )

    def _subscriber(
        self,
        carried: CarriedAny,
        subscription: Subscription,
        deliveries: Deliveries,
        signals: Signals,
        database: str,
    ) -> Subscriber:
        given = deliveries, signals.changed, signals.to_read
        if isinstance(carried, CarriedPublisher):
            pausing = Pausing(carried.name, carried.outlet, signals.pauses_changed)
            doing: Any = Sending(carried, pausing, *self.observing.of(carried))
            found = Subscriber(carried, subscription, doing, *given, WINDOW, self.settings.batch_size_max)
            found.stand_still()  # until it is known that its broker is there
            return found
        doing = self._doing(carried, database, deliveries.log)
        bounds = Bounds.of(carried.registration, self.settings)
        return Subscriber(
            *(carried, subscription, doing, *given),
            *(bounds.workers_max, bounds.batch_max, bounds.pacer),
        )

    def _doing(self, carried: Carried, database: str, log: Log) -> Handling:
        given = carried, self.lease, self.schema, database
        found = Handling(*given) if carried.batch is None else Batching(*given, log)
        found.counts, found.spans = self.observing.of(carried)
        return found

    async def register(self) -> None:
        """Begin to live, hold nothing of former epochs any more, and say so."""
        abilities = {each.name: each.abilities for each in self.carried}
        patterns = {each.name: each.patterns for each in self.carried}
        control = Log(self.lines.control, self.lease, self.schema, self.now)
        registered = control.step(
            leases.REGISTER,
            lease_seconds=self.settings.lease_seconds,
            process_id=os.getpid(),
            host=socket.gethostname(),
            code_version=self.settings.code_version,
            abilities=json.dumps(abilities),
            patterns=json.dumps(patterns),
            takes_events=not self.takes_all,
        )
        former = attrs.evolve(control, lease=Lease(self.lease.relay, self.lease.epoch - 1))
        await self.lines.control.transact(
            [
                registered,
                *_given_back(former),
                (SAY, (self.settings.channel, EVERYTHING)),
            ]
        )

    async def _subscribe(self, control: Log, server: int) -> tuple[Mapping[str, Subscription], int]:
        """Say what this relay carries: in one transaction, so that nobody sees a subscription without its cursors."""
        found, _ = await subscriptions_now(control)
        check_sources(self.carried, found)
        carried = sorted(self.carried, key=lambda each: each.name)
        names = [each.name for each in carried]
        subscribe = control.step(
            sql.SUBSCRIBE,
            names=names,
            kinds=[each.kind for each in carried],
            patterns=[json.dumps(each.patterns) for each in carried],
            ordered=[each.ordered for each in carried],
            sources=[each.source for each in carried],
            bounded=[each.is_bounded for each in carried],
        )
        from_beginning = [each.from_beginning for each in carried]
        renaming = Renaming.of(control, self.carried)
        await self.lines.control.transact(
            [
                control.step(cursors.DROP_CURSORS),
                subscribe,
                *renaming.steps(),
                control.step(cursors.ADD_CURSORS, names=names, from_beginning=from_beginning, server=server),
            ]
        )
        await renaming.move_receipts()
        return await subscriptions_now(control)


async def resign(line: Line, lease: Lease, schema: str | None, now: datetime | None, channel: str) -> None:
    """Live no longer, hold nothing, and say so: others go on at once."""
    log = Log(line, lease, schema, now)
    await line.transact(
        [
            log.step(leases.RESIGN),
            *_given_back(log),
            (SAY, (channel, EVERYTHING)),
        ]
    )


def _given_back(log: Log) -> list[Step]:
    """Give back what was held up to an epoch that is over; only after the lease's row says so."""
    return [log.step(each) for each in (cursors.GIVE_BACK_CURSORS, GIVE_BACK_DELIVERIES)]


async def _server(control: Log) -> Server:
    """Return the server whose transaction ids count; where it is a new one, wait for who writes now."""
    while True:
        [found] = await control.run(cursors.SERVER)
        if found["identifier"] == found["here"]:
            return Server(found["number"], found["floor"])
        [highest] = await control.run(cursors.HIGHEST)
        floor = highest["position"] if found["identifier"] is not None else 0
        if floor:
            await _until_done(control, set((await control.run(cursors.WRITERS))[0]["found"]))
        await control.line.transact(
            [control.step(cursors.LOCK_SERVERS), control.step(cursors.ADD_SERVER, floor=floor)]
        )


async def _until_done(control: Log, writers: set[str]) -> None:
    """Wait for transactions that may yet fill a gap in the log."""
    while writers:
        await asyncio.sleep(WRITERS_LOOK_SECONDS)
        writers &= set((await control.run(cursors.WRITERS))[0]["found"])
