"""The relay: claim, deliver, mark, all three at once, until it is told to stop (R1, R11, R12)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from typing import TYPE_CHECKING

from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import NullPool

from infrastructure.connections import TROUBLE
from infrastructure.database.engine import create_engine
from infrastructure.relay.claiming import Claimer, LeaseLost
from infrastructure.relay.crew import Crew
from infrastructure.relay.keeping import LeaseKeeper
from infrastructure.relay.ledger import Counts, Ledger
from infrastructure.relay.line import Line
from infrastructure.relay.listening import EVERYTHING, Listener
from infrastructure.relay.retention import Retention
from infrastructure.relay.roster import Roster, carry, check_buildable, newest_version
from infrastructure.relay.settings import RelaySettings
from infrastructure.relay.store import Lease, Store
from kernel.handlers import HandlerRegistration, registered_handlers
from kernel.retry import EXPONENTIAL
from kernel.upcasting import check_upcasters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from datetime import datetime

    from lagom import Container
    from sqlalchemy.engine import URL

    from infrastructure.relay.work import EventWork

_log = logging.getLogger("outbox.relay")

WATCH_SECONDS = 0.1
SWEEP_SECONDS = 60.0
# An event that has waited for this long in the first pass waits for something that does not come.
OLD_SECONDS = 60.0


class OutboxRelay:
    """Delivers the outbox's events to the handlers that this process carries.

    Any number of relays share one outbox; none needs to know of the others. `run()` serves until `stop()`
    or cancellation; `run_once()` and `run_until_idle()` are for tests and for programs with a loop of their own.
    """

    def __init__(
        self,
        engine_or_url: AsyncEngine | URL | str,
        container: Container,
        *,
        schema: str | None = None,
        handlers: Iterable[HandlerRegistration] | None = None,
        settings: RelaySettings | None = None,
        now: datetime | None = None,
    ) -> None:
        self._engine: AsyncEngine = _engine_of(engine_or_url)
        self._container = container
        self._settings = settings or RelaySettings()
        found = registered_handlers() if handlers is None else tuple(handlers)
        # A handler with a queue runs where that queue is consumed.
        self._registrations = [each for each in found if each.queue is None]
        self._schema = schema
        self._store = Store(schema, now)
        self._lease = Lease()
        self._lines = {name: Line(self._engine) for name in ("claim", "mark", "control")}
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._lost = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._started = False
        self._keeper: LeaseKeeper | None = None
        self._warn_at = 0.0
        self._sweep_at = 0.0
        self._renew_at = 0.0

    # --- for those who run it -----------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until `stop()` or cancellation, then give back what is in hand and end without an error."""
        try:
            await self._start()
            await self._serve()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
        finally:
            await self._end()

    def stop(self) -> None:
        """Claim no more; running handlers get a grace period."""
        self._stopping.set()
        self._wake.set()

    async def run_once(self) -> Counts:
        """Claim what is due now, up to a batch, deliver it, and return what became of it."""
        await self._start()
        before = self._ledger.counts
        self._ledger.counts = Counts()
        await self._renew_or_register()
        self._claimer.look_everywhere()
        claimed = await self._claim_step()
        await self._finish_in_hand()
        self._ledger.counts.claimed = claimed
        counts, self._ledger.counts = self._ledger.counts, before
        return counts

    async def run_until_idle(self) -> Counts:
        """Deliver until nothing is due now; retries that are due later are left for later."""
        total = Counts()
        more = True
        try:
            while more:
                counts = await self.run_once()
                total = total + counts
                more = bool(counts.claimed) or self._has_reason()
        finally:
            await self._end()
        return total

    # --- starting and ending ------------------------------------------------------------------------

    async def _start(self) -> None:
        if self._started:
            return
        check_upcasters()
        await check_buildable(self._registrations, self._container)
        carried = [carry(each, self._container, self._settings.retries_max) for each in self._registrations]
        self._roster = Roster(carried)
        self._ledger = Ledger(self._store, self._marked)
        self._crew = Crew(
            self._ledger, self._roster, concurrency=self._settings.concurrency, schema=self._schema
        )
        self._claimer = Claimer(
            self._store,
            self._crew,
            self._roster,
            batch_max=self._settings.batch_size_max,
            concurrency=self._settings.concurrency,
            poll_interval_seconds=self._settings.poll_interval_seconds,
        )
        self._retention = Retention(self._store, self._settings.cleanup_days)
        control = self._lines["control"]
        await self._register()
        await self._store.subscribe(control, self._roster.carried.values())
        self._roster.subscribe(*await self._store.subscriptions(control))
        self._started = True

    async def _register(self) -> None:
        self._crew.lease = self._lease
        abilities: dict[str, dict[str, int]] = {
            each.name: {pattern: newest_version(pattern) for pattern in each.patterns}
            for each in self._roster.carried.values()
        }
        who = (os.getpid(), socket.gethostname(), self._settings.code_version, json.dumps(abilities))
        await self._store.register(self._lines["control"], self._lease, self._settings.lease_seconds, who)

    async def _renew_or_register(self) -> None:
        self._renew_at = time.monotonic() + self._settings.lease_seconds / 3
        if not await self._store.renew(self._lines["control"], self._lease, self._settings.lease_seconds):
            await self._begin_anew()

    async def _take_over(self, line: Line) -> None:
        events, deliveries = await self._store.take_over(line)
        if events or deliveries:
            _log.warning(
                "took over from a relay that vanished",
                extra={"events": events, "deliveries": len(deliveries)},
            )
            self._claimer.look_everywhere()
            self._wake.set()

    async def _begin_anew(self) -> None:
        """Let go of everything and take a new lease: the old one is lost, and so is what it held."""
        _log.warning("lease lost: others do what was in hand", extra={"epoch": self._lease.epoch})
        await self._crew.end_all()
        # A write under way is waited for, then nothing awaits until the crew has the next lease.
        await self._ledger.forget()
        self._crew.forget()
        self._lease = self._lease.next()
        await self._register()
        await self._store.give_back(self._lines["control"], self._lease)
        self._claimer.look_everywhere()

    async def _write_last(self) -> None:
        try:
            await self._ledger.write(self._lines["mark"], self._lease)
        except TROUBLE as error:
            _log.warning("work in hand is left for others to take over", exc_info=error)

    async def _end(self) -> None:
        if self._started:
            await self._crew.stop(0)
            await self._write_last()
            try:
                await self._store.resign(self._lines["control"], self._lease)
            except TROUBLE as error:
                _log.warning("the lease is left to run out", exc_info=error)
            self._started = False
            self._lease = self._lease.next()
        for line in self._lines.values():
            await line.close()

    # --- serving ------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        self._keeper = LeaseKeeper(
            self._engine,
            self._store,
            lease_seconds=self._settings.lease_seconds,
            lease=lambda: self._lease,
            patience_seconds=self._crew.longest_limit_seconds,
            on_lost=self._lost.set,
        )
        steps = (self._claim_or_wait, self._write, self._watch, self._maintain, self._replace_lost_lease)
        tasks: list[asyncio.Task[object]] = [
            asyncio.create_task(self._persist(step), name=f"outbox-{step.__name__}") for step in steps
        ]
        tasks.append(asyncio.create_task(self._listener().run(), name="outbox-listener"))
        tasks.append(asyncio.create_task(self._stopping.wait(), name="outbox-stop"))
        self._keeper.start()
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._stopping.set()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._crew.release()
            await self._write_last()
            await self._crew.stop(self._settings.grace_seconds)
            await self._keeper.stop()
            self._keeper = None

    def _listener(self) -> Listener:
        url = self._settings.listen_url
        engine = create_engine(url, poolclass=NullPool) if url else self._engine
        return Listener(engine, self._settings.channel, self._wake_up)

    async def _persist(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step; a database that is gone or refuses is waited for."""
        failures = 0
        while not self._stopping.is_set():
            try:
                await step()
                failures = 0
            except LeaseLost:
                self._lost.set()
            except TROUBLE as error:
                failures += 1
                delay = EXPONENTIAL.delay_after(min(failures, 3)) or 0
                _log.warning("%s; the relay tries again", error, extra={"delay_seconds": delay})
                await asyncio.sleep(delay)

    async def _replace_lost_lease(self) -> None:
        await self._lost.wait()
        async with self._claiming:
            await self._begin_anew()
        self._lost.clear()
        self._wake.set()

    async def _claim_or_wait(self) -> None:
        if self._claimer.room < self._claimer.batch / 2:
            self._crew.changed.clear()
            if self._claimer.room < self._claimer.batch / 2:
                await self._crew.changed.wait()
            return
        self._wake.clear()
        if self._claimer.next_look_in_seconds() <= 0:
            # However often it is woken for new events, or busy with them.
            self._claimer.look_everywhere()
        try:
            async with self._claiming:
                claimed = await self._claim_step()
        except TROUBLE:
            if not self._lines["claim"].is_open:
                # The server may have claimed for us what we shall never hear of: only a new epoch finds it.
                self._lost.set()
            raise
        if not claimed and not self._has_reason():
            await self._wait_for_reason()

    def _has_reason(self) -> bool:
        return self._claimer.events_due or self._claimer.deliveries_due or self._claimer.suspects

    async def _claim_step(self) -> int:
        claimer, line = self._claimer, self._lines["claim"]
        claimed = 0
        if claimer.events_due:
            claimed += await claimer.claim_events(line, self._lease)
        if claimer.deliveries_due:
            claimed += await claimer.claim_deliveries(line, self._lease)
        if claimer.suspects:
            claimed += await self._run_suspect()
        return claimed

    async def _run_suspect(self) -> int:
        """Run what may have killed relays before, while nothing else is in hand that could be blamed for it."""
        await self._finish_in_hand()
        claimed = await self._claimer.claim_deliveries(self._lines["claim"], self._lease, suspects=True)
        self._claimer.suspects = bool(claimed)
        await self._finish_in_hand()
        return claimed

    async def _finish_in_hand(self) -> None:
        while True:
            self._crew.changed.clear()
            if self._ledger.unwritten.is_set():
                await self._ledger.write(self._lines["mark"], self._lease)
            elif self._crew.idle():
                return
            else:
                await self._either_changes()
                self._crew.watch()
                if self._keeper is None and time.monotonic() > self._renew_at:
                    await self._renew_or_register()

    async def _either_changes(self) -> None:
        waits = [asyncio.ensure_future(each.wait()) for each in (self._crew.changed, self._ledger.unwritten)]
        try:
            await asyncio.wait(waits, timeout=WATCH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _wait_for_reason(self) -> None:
        try:
            async with asyncio.timeout(self._claimer.next_look_in_seconds()):
                await self._wake.wait()
        except TimeoutError:
            self._claimer.look_everywhere()

    def _wake_up(self, said: str) -> None:
        self._claimer.events_due = True
        if said == EVERYTHING:
            self._claimer.deliveries_due = True
        self._wake.set()

    def _marked(self, works: Sequence[EventWork]) -> None:
        self._crew.marked(works)
        self._claimer.note_done(len(works))

    async def _write(self) -> None:
        await self._ledger.unwritten.wait()
        await self._ledger.write(self._lines["mark"], self._lease)
        if self._ledger.deliveries_changed:
            self._ledger.deliveries_changed = False
            self._claimer.deliveries_due = True
            self._wake.set()

    async def _watch(self) -> None:
        await asyncio.sleep(WATCH_SECONDS)
        self._crew.watch()

    def _watch_oldest(self, age_seconds: float | None) -> None:
        if age_seconds is None or age_seconds < OLD_SECONDS or time.monotonic() < self._warn_at:
            return
        self._warn_at = time.monotonic() + OLD_SECONDS
        _log.warning(
            "the oldest event that is not delivered has waited for %.0f s: see `outbox doctor`", age_seconds
        )

    async def _maintain(self) -> None:
        line = self._lines["control"]
        await self._store.rename(line, self._roster.carried.values())
        now = time.monotonic()
        # The sweep reads all that is open, so it has its reason: a lease has run out, or a while has passed.
        if now >= self._sweep_at or await self._store.any_expired(line):
            self._sweep_at = now + SWEEP_SECONDS
            await self._take_over(line)
        self._watch_oldest(await self._claimer.raise_front(line))
        await self._retention.step(line)
        await asyncio.sleep(min(self._settings.poll_interval_seconds, self._settings.lease_seconds / 3))


def _engine_of(engine_or_url: AsyncEngine | URL | str) -> AsyncEngine:
    if isinstance(engine_or_url, AsyncEngine):
        return engine_or_url
    # Only a maker of connections; each line has its own.
    return create_engine(engine_or_url, poolclass=NullPool)
