"""The relay: reads the log, delivers, moves on, shift after shift, until it is told to stop (R1, R11, R12)."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import NullPool

from outbox_kernel.infrastructure.calling import check_buildable
from outbox_kernel.infrastructure.cancelling import CancelledByOthers, EndsWhenCancelled
from outbox_kernel.infrastructure.errors import NothingToDeliverTo
from outbox_kernel.infrastructure.outbox.delivery import Counts
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.outbox.sealing.requiring import in_force, require_master_keys
from outbox_kernel.infrastructure.outbox.wake_up import wake_relays
from outbox_kernel.infrastructure.postgres.connections import TROUBLE
from outbox_kernel.infrastructure.postgres.engine import create_engine
from outbox_kernel.infrastructure.relay.lease import Lease, LeaseKeeper, LeaseLost
from outbox_kernel.infrastructure.relay.limits import LEASE_RENEWALS
from outbox_kernel.infrastructure.relay.listener import EVERYTHING, Listener
from outbox_kernel.infrastructure.relay.metrics import Observing
from outbox_kernel.infrastructure.relay.retention import Retention
from outbox_kernel.infrastructure.relay.serving import Rests, Serving
from outbox_kernel.infrastructure.relay.settings import RelaySettings
from outbox_kernel.infrastructure.relay.starting import Assembly, Ground, Lines, resign
from outbox_kernel.infrastructure.relay.subscription import CarriedPublisher, Renaming, carry, check_names
from outbox_kernel.infrastructure.relay.takeover import Upkeep
from outbox_kernel.infrastructure.relay.timeouts import patience_seconds
from outbox_kernel.infrastructure.waiting import Signal
from outbox_kernel.kernel.handlers import HandlerRegistration, registered_handlers, unknown_types
from outbox_kernel.kernel.upcasting import check_upcasters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
    from datetime import datetime

    from sqlalchemy.engine import URL

    from outbox_kernel.infrastructure.brokers import Outlet, Publisher
    from outbox_kernel.infrastructure.master_keys import MasterKeys
    from outbox_kernel.infrastructure.relay.outages import Pause
    from outbox_kernel.infrastructure.relay.shift import Shift
    from outbox_kernel.infrastructure.relay.subscription import CarriedAny
    from outbox_kernel.infrastructure.scopes import AnyContainer
    from outbox_kernel.infrastructure.telemetry.metrics import Metrics

_log = logging.getLogger("outbox.relay")


class OutboxRelay:
    """Delivers the outbox's events to the handlers that this process carries.

    Any number of relays share one outbox; none needs to know of the others. `run()` serves until `stop()`
    or cancellation; `run_once()` and `run_until_idle()` are for tests and for programs with a loop of their own.
    Without a handler and a publisher it does not start, since every event would count as delivered, unless
    `deliver_to_nobody` says that this is meant. `master_keys` open sealed fields (default: OUTBOX_MASTER_KEYS).
    """

    def __init__(  # noqa: PLR0913 - options, each by its name
        self,
        engine_or_url: AsyncEngine | URL | str,
        container: AnyContainer,
        *,
        schema: str | None = None,
        handlers: Iterable[HandlerRegistration] | None = None,
        publishers: Mapping[Publisher, Outlet] | None = None,
        queues: Iterable[str] | None = None,
        settings: RelaySettings | None = None,
        deliver_to_nobody: bool = False,
        master_keys: MasterKeys | None = None,
        metrics: Metrics | None = None,
        now: datetime | None = None,
    ) -> None:
        self.engine: AsyncEngine = _engine_of(engine_or_url)
        """What its connections are made by."""
        self._container = container
        self._settings = settings = settings or RelaySettings()
        self._observing = Observing(metrics, settings.lease_seconds)
        keys = in_force(master_keys)
        self._stopping = Signal()
        self._ground = Ground(self.engine, settings, schema, now, keys, self._observing, self._stopping)
        found = registered_handlers() if handlers is None else tuple(handlers)
        # A handler with a queue runs where that queue is consumed, and nothing else runs there.
        self._queues = None if queues is None else frozenset(queues)
        self._registrations = [each for each in found if self._is_ours(each)]
        self._publishers = dict(publishers or {})
        self._may_lack_all = deliver_to_nobody or self._queues is not None
        self._id, self._epochs = uuid4(), count(1)
        self._lease: Lease | None = None
        self._shift: Shift | None = None
        self._is_checked = False
        self._pauses_of_others: dict[str, Pause] = {}
        self.subscribed: asyncio.Event = asyncio.Event()
        """Set while the database knows what this relay carries: from then on that is due."""
        self.paused: dict[str, str] = {}
        """What `run_until_idle()` has left standing still, and so what is for it; each with its reason."""

    def run(self) -> Coroutine[Any, Any, None]:
        """Serve until `stop()` or cancellation, then give back what is in hand and end without an error."""
        return EndsWhenCancelled(self._run())

    async def _run(self) -> None:
        try:
            await self.check()
            await self._serve_shifts()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
        finally:
            await self._end()

    async def _serve_shifts(self) -> None:
        rests = Rests()
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                async with self._shift_begun(takes_all=False, is_start=not rests.have_begun) as shift:
                    serving = self._serving(shift)
                    rests.note_begun()
                    await serving.serve()
                continue
            except CancelledByOthers:
                raise
            except TROUBLE as error:
                if not rests.have_begun:
                    raise
                if self._stopping.is_set():
                    _log.warning(
                        "%s; the relay ends, and leaves to others what it had in hand",
                        error,
                        extra={"action": "relay.shift.abandoned"},
                    )
                    return
                ended_by = error
                self._observing.note_trouble(error)
            await self._stopping.wait(rests.after(ended_by, time.monotonic() - began))

    async def check(self) -> None:
        """Raise what a start would raise of handlers and publishers, which needs no database to be found (R14)."""
        if self._is_checked:
            return
        if not (self._registrations or self._publishers or self._may_lack_all):
            raise NothingToDeliverTo(
                "this relay carries neither a handler nor a publisher, so every event would count as delivered, to "
                "nobody: import the modules of the handlers first, as `Outbox(…).relay()` and `outbox relay` do, or "
                "say deliver_to_nobody=True if that is meant"
            )
        check_upcasters()
        require_master_keys(self._ground.master_keys)
        check_names(self._registrations, self._publishers)
        await check_buildable(self._registrations, self._container)
        for name, sentence in unknown_types(self._registrations):
            _log.warning("%s", sentence, extra={"action": "handler.event.unknown", "handler": name})
        self._is_checked = True

    def look(self) -> None:
        """Look at once for events that somebody in this process has just committed, and let other relays look too."""
        if self._shift is not None:
            self._shift.hear("")
        wake_relays(self.engine.sync_engine, self._settings.channel)

    def note_pause(self, name: str, pause: Pause | None) -> None:
        """Let `status` and `doctor` show what somebody in this process waits for; without a pause, no more."""
        if pause is None:
            self._pauses_of_others.pop(name, None)
        else:
            self._pauses_of_others[name] = pause
        if self._shift is not None:
            self._shift.pauses_changed.set()

    def stop(self) -> None:
        """Read no more; running handlers get a grace period."""
        self._stopping.set()

    async def run_once(self) -> Counts:
        """Deliver what is due now, up to a batch for each handler, and return what became of it."""
        try:
            await self.check()
            async with self._shift_begun(takes_all=True) as shift:
                return await self._round(shift)
        finally:
            await self._end()

    async def run_until_idle(self) -> Counts:
        """Deliver until nothing is due now; retries that are due later are left for later."""
        total = Counts()
        try:
            await self.check()
            is_idle, is_start = False, True
            while not is_idle:
                async with self._shift_begun(takes_all=True, is_start=is_start) as shift:
                    is_start = False
                    while not (is_idle or shift.lost.is_set()):
                        counts = await self._round(shift)
                        total = total + counts
                        is_idle = not (counts.claimed or shift.has_reason or shift.lost.is_set())
                        self.paused = {name: pause.reason for name, pause in shift.pauses.items()}
                    with suppress(LeaseLost):  # then the next run finds its places as they were
                        await shift.let_go()
        finally:
            await self._end()
        return total

    async def _round(self, shift: Shift) -> Counts:
        """Deliver once what is due; where the lease is lost meanwhile, what was in hand is for the next shift."""
        shift.progress.counts = shift.deliveries.counts = counts = Counts()
        try:
            await shift.go_round()
        except LeaseLost as error:
            shift.lose()
            self._observing.note_trouble(error)
            _log.warning(
                "%s; what was in hand is done again under the next lease",
                error,
                extra={"action": "relay.lease.lost"},
            )
        return counts

    @asynccontextmanager
    async def _shift_begun(self, *, takes_all: bool, is_start: bool = True) -> AsyncIterator[Shift]:
        """A shift from its beginning to its end, with the thread that keeps its lease."""
        lease = Lease(self._id, next(self._epochs))
        async with AsyncExitStack() as ending:
            lines = Lines(*(Line(self.engine, reopens=False) for _ in Lines._fields))
            for line in lines:
                ending.push_async_callback(line.close)
            assembly = Assembly(self._ground, self._carried(), lines, lease, takes_all, is_start)
            before, self._lease = self._lease, lease
            try:
                await assembly.register()
            except BaseException:
                if not lines.control.unanswered:
                    self._lease = before  # nothing of it can be there
                raise
            keeper = self._keeper_of(lease)
            keeper.start()
            # However often it is cancelled: a keeper that outlived this would end the process.
            ending.push_async_callback(keeper.stop)
            shift = await assembly.shift()
            keeper.patience_seconds = lambda task: patience_seconds(shift.runs, task)
            keeper.on_lost = shift.lose
            shift.pauses_of_others = self._pauses_of_others
            shift.pauses_changed.set()
            try:
                for outage in shift.outages:
                    outage.open()
                await shift.ownership.balance()
                self._shift = shift
                self.subscribed.set()
                yield shift
            finally:
                self._shift = None
                self.subscribed.clear()
                await shift.end()

    def _is_ours(self, registration: HandlerRegistration) -> bool:
        return registration.queue is None if self._queues is None else registration.queue in self._queues

    def _carried(self) -> list[CarriedAny]:
        settings = self._settings
        handlers = [carry(each, self._container, settings.retries_max) for each in self._registrations]
        publishers = [
            CarriedPublisher(each, outlet, settings.publish_schedule)
            for each, outlet in self._publishers.items()
        ]
        return [*handlers, *publishers]

    def _keeper_of(self, lease: Lease) -> LeaseKeeper:
        seconds = self._settings.lease_seconds
        line = Line(self.engine, deadline_seconds=max(seconds / LEASE_RENEWALS, 1.0))
        log = self._ground.log(line, lease)
        return LeaseKeeper(log, lease_seconds=seconds, on_renewed=self._observing.note_renewal)

    def _serving(self, shift: Shift) -> Serving:
        settings = self._settings
        url = settings.listen_url
        engine = create_engine(url, setting="OUTBOX_LISTEN_URL", poolclass=NullPool) if url else self.engine
        control = shift.control
        listener = Listener(engine, settings.channel, shift.hear, control.line, self._observing.relay)
        upkeep = Upkeep(
            control,
            Renaming.of(control, [each.carried for each in shift.subscribers.values()]),
            Retention(control, settings.cleanup_days),
            min(settings.poll_interval_seconds, settings.lease_seconds / 3),
            settings.channel,
            lambda: shift.hear(EVERYTHING),
        )
        return Serving(shift, [listener.run, upkeep.run], self._stopping)

    async def _end(self) -> None:
        """Live no longer, and hold nothing: whatever of it does not arrive runs out with the lease."""
        self._stopping.clear()
        lease, self._lease = self._lease, None
        if lease is None:
            return
        self._observing.end()
        try:
            await resign(self._ground, lease)
        except TROUBLE as error:
            _log.warning("the lease is left to run out", exc_info=error, extra={"action": "relay.lease.left"})


def _engine_of(engine_or_url: AsyncEngine | URL | str) -> AsyncEngine:
    if isinstance(engine_or_url, AsyncEngine):
        return engine_or_url
    # Only a maker of connections; each line has its own.
    return create_engine(engine_or_url, poolclass=NullPool)
