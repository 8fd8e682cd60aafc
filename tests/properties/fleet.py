"""Relays taken apart: each step of each is taken by a test, on one clock, with handlers that do as they are told."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import attrs
from lagom import Container
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from outbox_kernel.infrastructure.outbox.receipts import current_run
from outbox_kernel.infrastructure.relay import OutboxRelay, RelaySettings
from outbox_kernel.infrastructure.relay.claiming import LeaseLost
from outbox_kernel.infrastructure.relay.delivering import Delivering
from outbox_kernel.infrastructure.relay.line import Line
from outbox_kernel.infrastructure.relay.running import Run as HandlerAtWork
from outbox_kernel.kernel import DomainEvent, RetrySchedule, current_delivery
from outbox_kernel.kernel.errors import Reject
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.domain import Announced, Noted, Paid, journal

LEASE_SECONDS = 15.0
SCHEDULE = RetrySchedule((1, 30), dead_at=3, jitter_share=0)
# What a handler does in one run; `wait` is where another step may come between.
PLANS = (
    *("commit",) * 6,
    *("succeed", "fail", "fail", "reject"),
    *("wait commit", "wait commit", "wait fail", "wait succeed", "commit wait", "commit fail"),
)
# Each logical handler: whether it keeps order, whether a dead letter lets others pass, what it handles.
LEDGER, AUDIT, MAIL = "ledger", "audit", "mail"
ORDERED = (LEDGER, AUDIT)
HANDLED: dict[str, tuple[type[DomainEvent], ...]] = {
    LEDGER: (Noted, Paid),
    AUDIT: (Noted,),
    MAIL: (Noted, Announced),
}
TYPES = {"bank.noted": Noted, "bank.paid": Paid, "bank.announced": Announced}
# In the newest version of the code the ledger has another name.
BOOK = "book"
LOGICAL = {LEDGER: LEDGER, BOOK: LEDGER, AUDIT: AUDIT, MAIL: MAIL}
VERSIONS = {"old": (LEDGER, AUDIT), "some": (MAIL,), "all": (LEDGER, AUDIT, MAIL), "new": (BOOK, AUDIT, MAIL)}


class KeptLine(Line):
    """A line that ships share and that outlives them."""

    async def close(self) -> None: ...

    async def hang_up(self) -> None:
        await super().close()


@attrs.frozen
class Sea:
    """What all ships of a run share."""

    engine: AsyncEngine
    sessions: async_sessionmaker[Any]
    lines: dict[str, Line]

    @classmethod
    def on(cls, engine: AsyncEngine, sessions: async_sessionmaker[Any]) -> Sea:
        return cls(engine, sessions, {name: KeptLine(engine) for name in ("claim", "mark", "control")})

    async def close(self) -> None:
        for line in self.lines.values():
            assert isinstance(line, KeptLine)
            await line.hang_up()


@attrs.define(eq=False)
class Run:
    """A run of a handler, as it reports itself."""

    ship: Ship
    handler: str
    position: int
    plan: str
    again: bool
    """Whether it had succeeded before."""
    at: datetime


@attrs.define
class Log:
    """What the handlers have seen and done, in the order in which it happened."""

    started: list[Run] = attrs.Factory(list)
    succeeded: set[tuple[int, str]] = attrs.Factory(set)
    effects: list[tuple[int, str]] = attrs.Factory(list)
    without_effect: set[tuple[int, str]] = attrs.Factory(set)
    failures: dict[tuple[int, str], int] = attrs.Factory(dict)
    waiting: dict[object, asyncio.Event] = attrs.Factory(dict)
    moved: asyncio.Event = attrs.Factory(asyncio.Event)


class Ship(OutboxRelay):
    """A relay whose captain is the test."""

    at_work: Delivering

    def __init__(self, sea: Sea, log: Log, version: str, start: datetime) -> None:
        handlers = [self._registration(name) for name in VERSIONS[version]]
        settings = RelaySettings(lease_seconds=LEASE_SECONDS, concurrency=50)
        super().__init__(sea.engine, Container(), handlers=handlers, settings=settings, now=start)
        self.sea, self.log, self.version, self.sunk = sea, log, version, False
        self._lines = sea.lines
        self._tenure.line = sea.lines["control"]
        self.plans = ["commit"]

    def _registration(self, name: str) -> HandlerRegistration:
        ship = self

        class Acting:
            async def handle(self, event: Any) -> None:
                await ship.act(name)

        logical = LOGICAL[name]
        return HandlerRegistration(
            *(name, Acting, HANDLED[logical]),
            renamed_from=LEDGER if name == BOOK else None,
            retry=SCHEDULE,
            ordered=logical in ORDERED,
            on_dead="continue" if logical == AUDIT else "park",
        )

    # --- what its handlers do -------------------------------------------------------------------------

    async def act(self, name: str) -> None:
        position, logical = current_delivery().position, LOGICAL[name]
        if self.sunk:
            raise Reject("nothing happens on a wreck")
        # By what it is, not by whose turn it is: who comes first among several is the database's affair.
        plan = self.plans[(position * len(HANDLED) + [*HANDLED].index(logical)) % len(self.plans)]
        again, now = (position, logical) in self.log.succeeded, self._store.now
        assert now is not None
        run = Run(self, logical, position, plan, again, now)
        self.log.started.append(run)
        try:
            for act in run.plan.split():
                await getattr(self, f"_{act}_")(run)
        except Exception:
            key = position, logical
            self.log.failures[key] = self.log.failures.get(key, 0) + 1
            raise
        self.log.succeeded.add((position, logical))

    async def _commit_(self, run: Run) -> None:
        async with SqlAlchemyUnitOfWork(self.sea.sessions) as uow:
            await uow.session.execute(insert(journal).values(line=f"{run.position}:{run.handler}"))
            await uow.commit()
        self.log.effects.append((run.position, run.handler))
        self.log.succeeded.add((run.position, run.handler))

    async def _succeed_(self, run: Run) -> None:
        self.log.without_effect.add((run.position, run.handler))

    async def _fail_(self, run: Run) -> None:
        raise ValueError("as told")

    async def _reject_(self, run: Run) -> None:
        raise Reject("as told")

    async def _wait_(self, run: Run) -> None:
        key, go = current_run(), asyncio.Event()
        self.log.waiting[key] = go
        self.log.moved.set()
        try:
            await go.wait()
        finally:
            self.log.waiting.pop(key, None)
        if self.sunk:
            raise Reject("nothing happens on a wreck")

    # --- its steps --------------------------------------------------------------------------------------

    @property
    def lease(self) -> Any:
        return self._tenure.lease

    def tell_time(self, now: datetime) -> None:
        object.__setattr__(self._store, "now", now)

    async def set_out(self) -> None:
        self.at_work = await self._start()

    async def claim_events(self) -> int:
        try:
            claimed = await self.at_work.claimer.claim_events(self._lines["claim"], self.lease)
        except LeaseLost:
            return 0  # what it does about it is another step
        await self.calm()
        return claimed

    async def claim_deliveries(self) -> int:
        try:
            claimed = await self.at_work.claimer.claim_deliveries(self._lines["claim"], self.lease)
        except LeaseLost:
            return 0
        await self.calm()
        return claimed

    async def claim_known(self) -> int:
        """What it has heard of by what it wrote, whenever that was."""
        work = self.at_work
        work._hear_of_written()  # noqa: SLF001 - as who writes does
        try:
            claimed = await work.claimer.claim_known(self._lines["claim"], self.lease)
        except LeaseLost:
            return 0
        await self.calm()
        return claimed

    async def claim_suspect(self) -> None:
        """As it does when it has nothing else in hand."""
        if self.at_work.is_idle and not self.at_work.ledger.unwritten.is_set():
            try:
                await self.at_work.claimer.claim_deliveries(self._lines["claim"], self.lease, suspects=True)
            except LeaseLost:
                return
            await self.calm()

    async def write(self) -> None:
        await self.at_work.ledger.write(self._lines["mark"], self.lease)

    async def renew(self) -> None:
        await self.at_work.renew_or_register()
        await self.calm()

    async def keep_lease(self) -> None:
        """As its keeper does beside all else."""
        await self._store.renew(self._lines["control"], self.lease, LEASE_SECONDS)

    async def maintain(self) -> None:
        line = self._lines["control"]
        await self._renaming.step(line)
        await self._upkeep(self.at_work).take_over()
        await self.at_work.claimer.raise_front(line)

    async def watch(self) -> None:
        """What waits counts as slow, and steps aside."""
        self.at_work.crew.watch()
        await self.calm()

    async def let_go_on(self) -> None:
        """Let what waits go on, the eldest of it first."""
        for run in sorted(self._runs(), key=lambda run: run.started):
            if run.receipt in self.log.waiting:
                self.log.waiting.pop(run.receipt).set()
        await asyncio.sleep(0)
        await self.calm()

    async def sink(self) -> None:
        """Vanish, with all that is in hand, and without a word to the database."""
        self.sunk = True
        while self._at_work():
            await self.let_go_on()

    async def stop_in_order(self) -> None:
        """As when it is told to stop and its handlers do not end in time."""
        await self._end()

    async def work(self) -> int:
        """All that is due, as it does when it is alone."""
        return (await self.run_once()).claimed

    @property
    def has_reason(self) -> bool:
        return self.at_work.has_reason()

    async def calm(self) -> None:
        """Let it act until every handler of it has ended or waits."""
        while not self._is_calm():
            self.at_work.crew.changed.clear()
            self.log.moved.clear()
            if self._is_calm():
                return
            waits = [
                asyncio.ensure_future(each.wait()) for each in (self.at_work.crew.changed, self.log.moved)
            ]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

    def _is_calm(self) -> bool:
        waiting = sum(run.receipt in self.log.waiting for run in self._runs())
        return waiting == self._at_work()

    def _at_work(self) -> int:
        return len(self.at_work.crew._members)  # noqa: SLF001 - a crew tells nobody who is at work

    def _runs(self) -> list[HandlerAtWork]:
        members = self.at_work.crew._members  # noqa: SLF001 - as above
        return [member.run for member in members if member.run is not None]


def later(moment: datetime, seconds: float) -> datetime:
    return moment + timedelta(seconds=seconds)
