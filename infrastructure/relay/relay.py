"""The relay: claim, deliver, mark, all three at once, until it is told to stop (R1, R11)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import NullPool

from outbox_kernel.infrastructure.errors import NothingToDeliverTo
from outbox_kernel.infrastructure.postgres.engine import create_engine
from outbox_kernel.infrastructure.relay.claiming import Claimer
from outbox_kernel.infrastructure.relay.crew import Crew
from outbox_kernel.infrastructure.relay.delivering import Delivering
from outbox_kernel.infrastructure.relay.ending import EndsWhenCancelled
from outbox_kernel.infrastructure.relay.in_hand import InHand
from outbox_kernel.infrastructure.relay.keeping import LeaseKeeper
from outbox_kernel.infrastructure.relay.ledger import Counts, Ledger
from outbox_kernel.infrastructure.relay.line import Line
from outbox_kernel.infrastructure.relay.listening import Listener
from outbox_kernel.infrastructure.relay.patterns import unknown_types
from outbox_kernel.infrastructure.relay.pausing import Pausing
from outbox_kernel.infrastructure.relay.presses import Presses
from outbox_kernel.infrastructure.relay.publishing import Press
from outbox_kernel.infrastructure.relay.renaming import Renaming
from outbox_kernel.infrastructure.relay.retention import Retention
from outbox_kernel.infrastructure.relay.roster import (
    Carried,
    CarriedPublisher,
    Roster,
    carry,
    check_buildable,
    check_names,
    claim_of,
)
from outbox_kernel.infrastructure.relay.serving import Serving
from outbox_kernel.infrastructure.relay.settings import RelaySettings
from outbox_kernel.infrastructure.relay.store import Store, former_names
from outbox_kernel.infrastructure.relay.tenure import Tenure
from outbox_kernel.infrastructure.relay.upkeep import Upkeep
from outbox_kernel.kernel.handlers import HandlerRegistration, registered_handlers
from outbox_kernel.kernel.upcasting import check_upcasters

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping
    from datetime import datetime

    from sqlalchemy.engine import URL

    from outbox_kernel.infrastructure.brokers import Outlet, Publisher
    from outbox_kernel.infrastructure.relay.due_turns import TurnKey
    from outbox_kernel.infrastructure.relay.pausing import Pause
    from outbox_kernel.infrastructure.scopes import AnyContainer

_log = logging.getLogger("outbox.relay")


class OutboxRelay:
    """Delivers the outbox's events to the handlers that this process carries.

    Any number of relays share one outbox; none needs to know of the others. `run()` serves until `stop()`
    or cancellation; `run_once()` and `run_until_idle()` are for tests and for programs with a loop of their own.
    Without a handler and a publisher it does not start, since every event would count as delivered, unless
    `deliver_to_nobody` says that this is meant.
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
        now: datetime | None = None,
    ) -> None:
        self.engine: AsyncEngine = _engine_of(engine_or_url)
        """What its connections are made by."""
        self._container = container
        self._settings = settings or RelaySettings()
        found = registered_handlers() if handlers is None else tuple(handlers)
        # A handler with a queue runs where that queue is consumed, and nothing else runs there.
        self._queues = None if queues is None else frozenset(queues)
        self._registrations = [each for each in found if self._is_ours(each)]
        self._publishers = dict(publishers or {})
        self._may_lack_all = deliver_to_nobody or self._queues is not None
        self._schema = schema
        self._store = Store(schema, now)
        self._lines = {name: Line(self.engine) for name in ("claim", "mark", "control")}
        self._tenure = Tenure(
            self._store,
            self._lines["control"],
            self._settings.lease_seconds,
            self._settings.code_version,
            takes_events=self._queues is None,
        )
        self._is_checked = False
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._work: Delivering | None = None
        self._pauses_of_others: dict[str, Pause] = {}
        self.subscribed: asyncio.Event = asyncio.Event()
        """Set while the database knows what this relay carries: from then on that is due."""
        self.paused: dict[str, str] = {}
        """Which publishers `run_until_idle()` has left paused, and so what is for them; each with its reason."""

    # --- for those who run it -----------------------------------------------------------------------

    def run(self) -> Coroutine[Any, Any, None]:
        """Serve until `stop()` or cancellation, then give back what is in hand and end without an error."""
        return EndsWhenCancelled(self._run())

    async def _run(self) -> None:
        try:
            await self._serving(await self._start()).serve()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
        finally:
            await self._end()

    async def check(self) -> None:
        """Raise what a start would raise of handlers and publishers, which needs no database to be found (R14)."""
        if not (self._registrations or self._publishers or self._may_lack_all):
            raise NothingToDeliverTo(
                "this relay carries neither a handler nor a publisher, so every event would count as delivered, to "
                "nobody: import the modules of the handlers first, as `Outbox(…).relay()` and `outbox relay` do, or "
                "say deliver_to_nobody=True if that is meant"
            )
        check_upcasters()
        check_names([*map(claim_of, self._registrations), *map(claim_of, self._publishers)])
        await check_buildable(self._registrations, self._container)
        for name, sentence in unknown_types(self._registrations):
            _log.warning("%s", sentence, extra={"handler": name})
        self._is_checked = True

    def look_at(self, turns: Iterable[TurnKey]) -> None:
        """Look at once for deliveries that somebody in this process has just committed."""
        if self._work is not None:
            self._work.hear_of(turns)

    def note_pause(self, name: str, pause: Pause | None) -> None:
        """Let `status` and `doctor` show what somebody in this process waits for; without a pause, no more."""
        if self._pauses_of_others.get(name) == pause:
            return
        if pause is None:
            del self._pauses_of_others[name]
        else:
            self._pauses_of_others[name] = pause
        if self._work is not None:
            self._work.presses.changed.set()

    def stop(self) -> None:
        """Claim no more; running handlers get a grace period."""
        self._stopping.set()
        self._wake.set()

    async def run_once(self) -> Counts:
        """Claim what is due now, up to a batch, deliver it, and return what became of it."""
        work = await self._start()
        await work.presses.known()
        before, work.ledger.counts = work.ledger.counts, Counts()
        await work.renew_or_register()
        work.claimer.look_on()
        claimed = await work.claim()
        await work.finish_in_hand()
        work.ledger.counts.claimed = claimed
        counts, work.ledger.counts = work.ledger.counts, before
        return counts

    async def run_until_idle(self) -> Counts:
        """Deliver until nothing is due now; retries that are due later are left for later."""
        total = Counts()
        more = True
        try:
            while more:
                counts = await self.run_once()
                total = total + counts
                work = await self._start()
                more = bool(counts.claimed) or work.has_reason()
                self.paused = {name: pause.reason for name, pause in work.presses.pauses.items()}
        finally:
            await self._end()
        return total

    # --- starting and ending ------------------------------------------------------------------------

    async def _start(self) -> Delivering:
        if self._work is not None:
            return self._work
        if not self._is_checked:
            await self.check()
        self._is_checked = False
        work = self._assembled(Roster([*self._carried_handlers(), *self._carried_publishers()]))
        work.presses.open()
        try:
            await work.register()
            self._renaming = Renaming(self._store, *former_names(work.roster.carried.values()))
            await self._renaming.move_receipts(self._lines["control"])
        except BaseException:  # cancelled, too: nobody lives under a lease that leads to nothing
            await work.end()
            raise
        self._work = work
        self.subscribed.set()
        return work

    def _assembled(self, roster: Roster) -> Delivering:
        ledger = Ledger(self._store)
        hand = InHand(ledger, roster)
        crew = Crew(hand, concurrency=self._settings.concurrency, schema=self._schema)
        presses = Presses(others=self._pauses_of_others)
        claimer = Claimer(
            self._store,
            hand,
            crew,
            presses,
            roster,
            batch_max=self._settings.batch_size_max,
            concurrency=self._settings.concurrency,
            poll_interval_seconds=self._settings.poll_interval_seconds,
            takes_events=self._tenure.takes_events,
        )
        work = Delivering(self._lines, self._tenure, roster, ledger, hand, crew, presses, claimer, self._wake)
        ledger.on_marked, ledger.on_settled = work.note_marked, claimer.note_done
        for each in roster.carried.values():
            if isinstance(each, CarriedPublisher):
                pausing = Pausing(each.name, each.outlet, work.note_pause)
                presses.each[each.name] = Press(each, hand, pausing, crew.changed)
                roster.held.add(each.name)  # until it is known that its broker is there
        return work

    def _is_ours(self, registration: HandlerRegistration) -> bool:
        return registration.queue is None if self._queues is None else registration.queue in self._queues

    def _carried_handlers(self) -> list[Carried]:
        return [carry(each, self._container, self._settings.retries_max) for each in self._registrations]

    def _carried_publishers(self) -> list[CarriedPublisher]:
        schedule = self._settings.publish_schedule
        return [CarriedPublisher(each, outlet, schedule) for each, outlet in self._publishers.items()]

    async def _end(self) -> None:
        work, self._work = self._work, None
        self.subscribed.clear()
        if work is not None:
            await work.end()
        self._stopping.clear()
        for line in self._lines.values():
            await line.close()

    # --- serving ------------------------------------------------------------------------------------

    def _serving(self, work: Delivering) -> Serving:
        tenure, settings = self._tenure, self._settings
        keeper = LeaseKeeper(
            self.engine,
            self._store,
            lease_seconds=settings.lease_seconds,
            lease=lambda: tenure.lease,
            patience_seconds=work.crew.longest_limit_seconds,
            on_lost=tenure.lose,
        )
        upkeep = self._upkeep(work)
        return Serving(work, upkeep, keeper, self._listener(work), self._stopping, settings.grace_seconds)

    def _upkeep(self, work: Delivering) -> Upkeep:
        settings = self._settings
        return Upkeep(
            self._store,
            self._lines["control"],
            self._renaming,
            work.claimer,
            Retention(self._store, settings.cleanup_days),
            min(settings.poll_interval_seconds, settings.lease_seconds / 3),
            self._wake.set,
            None if self._queues is None else work.roster,
        )

    def _listener(self, work: Delivering) -> Listener:
        url = self._settings.listen_url
        engine = create_engine(url, setting="OUTBOX_LISTEN_URL", poolclass=NullPool) if url else self.engine
        return Listener(engine, self._settings.channel, work.wake_up, self._lines["control"])


def _engine_of(engine_or_url: AsyncEngine | URL | str) -> AsyncEngine:
    if isinstance(engine_or_url, AsyncEngine):
        return engine_or_url
    # Only a maker of connections; each line has its own.
    return create_engine(engine_or_url, poolclass=NullPool)
