"""Relays led by the hand: a test takes each step of each, and their handlers do as they are told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import attrs
from lagom import Container
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.relay import OutboxRelay, RelaySettings
from outbox_kernel.infrastructure.relay.lease import LeaseLost
from outbox_kernel.infrastructure.relay.shift import Shift
from outbox_kernel.infrastructure.relay.subscription import Renaming
from outbox_kernel.kernel import DomainEvent, RetrySchedule, current_delivery
from outbox_kernel.kernel.errors import Reject
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.domain import Announced, Noted, Paid, journal

# Longer than any history takes: whose lease ends, and what is tried again, the history says.
LEASE_SECONDS = 3600.0
SCHEDULE = RetrySchedule((3600,), dead_at=3, jitter_share=0)
# What a handler does in one run; while it waits, other steps are taken.
PLANS = (
    *("commit",) * 6,
    *("succeed", "fail", "fail", "reject"),
    *("wait commit", "wait commit", "wait fail", "wait succeed", "commit wait", "commit fail"),
)
LEDGER, AUDIT, MAIL = "ledger", "audit", "mail"
HANDLED: dict[str, tuple[type[DomainEvent], ...]] = {
    LEDGER: (Noted, Paid),
    AUDIT: (Noted,),
    MAIL: (Noted, Announced),
}
ORDERED = (LEDGER, AUDIT)
"""Of these the dead letter of one lets later events pass, that of the other does not."""
# In newer code the ledger has another name.
BOOK = "book"
LOGICAL = {LEDGER: LEDGER, BOOK: LEDGER, AUDIT: AUDIT, MAIL: MAIL}
OLD = ((LEDGER, AUDIT), (LEDGER, AUDIT, MAIL), (MAIL,), (AUDIT, MAIL))
NEW = ((BOOK, AUDIT), (BOOK, AUDIT, MAIL))
"""What relays of each code carry."""

Key = tuple[int, str]
"""An event's position, and a handler by its first name."""


@attrs.define
class Report:
    """What the handlers of all relays have begun and done."""

    order: list[tuple[str, Key]] = attrs.Factory(list)
    """As it came: begun, or in vain, under a lease that is lost; effect; succeeded."""
    failures: Counter[Key] = attrs.Factory(Counter)
    waiting: dict[asyncio.Task[Any], asyncio.Event] = attrs.Factory(dict)
    moved: asyncio.Event = attrs.Factory(asyncio.Event)

    def note(self, what: str, key: Key) -> None:
        self.order.append((what, key))


class NoKeeper:
    """Nobody renews, and nobody watches the loop."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...


class Relay(OutboxRelay):
    """One that does nothing by itself."""

    def _keeper_of(self, *_: Any) -> Any:
        return NoKeeper()


@attrs.define(eq=False)
class Led:
    """A relay, and its shift."""

    engine: AsyncEngine
    sessions: async_sessionmaker[AsyncSession]
    report: Report
    carried: tuple[str, ...]
    batch_size_max: int
    plans: list[str] = attrs.Factory(lambda: ["commit"])
    is_live: bool = True
    """Whether its lease holds, for all that it can know."""
    times_out: bool = False
    relay: Relay = attrs.field(init=False)
    shift: Shift = attrs.field(init=False)
    _open: AsyncExitStack = attrs.Factory(AsyncExitStack)

    def __attrs_post_init__(self) -> None:
        self.relay = Relay(
            self.engine,
            Container(),
            handlers=[self._registration(name) for name in self.carried],
            settings=RelaySettings(
                lease_seconds=LEASE_SECONDS, concurrency=20, batch_size_max=self.batch_size_max
            ),
        )

    # --- beginning and ending -----------------------------------------------------------------------

    async def begin(self, *, is_start: bool = True) -> None:
        """Begin a shift under the next lease."""
        shift = self.relay._shift_begun(takes_all=False, is_start=is_start)  # noqa: SLF001 - as `run` does
        self.shift = await self._open.enter_async_context(shift)
        self.is_live = True

    async def vanish(self) -> None:
        """Be gone with all that is in hand, and without a word to the database."""
        self.is_live = False
        await self._open.aclose()

    async def leave(self) -> None:
        """End as when it is told to stop, and gives no grace."""
        await self._tried(lambda: self.shift.release(0.0))
        await self.vanish()
        await self.relay._end()  # noqa: SLF001 - as `run` does

    @property
    def lease(self) -> Any:
        """What all of it is fenced by."""
        return self.shift.ownership.log.lease

    # --- steps ----------------------------------------------------------------------------------------

    async def step(self, step: Callable[[], Awaitable[object]]) -> None:
        """Take one, and let its handlers act; where it is over with the shift, begin the next."""
        if not await self._tried(step):
            await self.vanish()
            await self.begin(is_start=False)
        await self.calm()

    async def _tried(self, step: Callable[[], Awaitable[object]]) -> bool:
        try:
            for line in self.shift.lines:
                line.check()
            await step()
        except (LeaseLost, DatabaseUnreachable):
            self.is_live = False
            return False
        return True

    async def read(self) -> None:
        self.shift.reading.look()
        for wanting in self.shift.reading.groups():
            await self.shift.read_for(wanting)

    async def deliver(self) -> None:
        self.shift.deliveries.look_everywhere()
        await self.shift.deliveries.take()

    async def deliver_known(self) -> None:
        """What it has heard of by what it has written."""
        if not self.shift.deliveries.rest_seconds():
            await self.shift.deliveries.take()

    async def deliver_suspect(self) -> None:
        """As it does when it has nothing else in hand."""
        if self.shift.deliveries.suspects and self.shift.is_idle:
            await self.shift.deliveries.take_suspects()

    async def write(self) -> None:
        await self.shift.write_all()

    async def watch(self) -> None:
        """What waits counts as slow, and steps aside."""
        self.shift.watch_once()

    async def time_out(self) -> None:
        """What waits has had its time."""
        self.times_out = True
        for subscriber in self.shift.subscribers.values():
            for _, run in subscriber.workers.running:
                run.started -= 2 * run.carried.timeout_seconds
        self.shift.watch_once()
        await self.calm()
        self.times_out = False

    async def balance(self) -> None:
        await self.shift.learn()
        await self.shift.ownership.balance()
        await self.shift.ownership.join()

    async def move_names(self) -> None:
        """Take over what relays of older code have left under a former name."""
        carried = [each.carried for each in self.shift.subscribers.values()]
        await Renaming.of(self.shift.ownership.log, carried).step()

    async def go_round(self) -> None:
        """All of it, with nothing that waits."""
        self.plans = [plan.replace("wait ", "").removesuffix(" wait") for plan in self.plans]
        await self.let_go_on()
        await self.shift.go_round()

    async def let_go_on(self) -> None:
        """Let what waits go on, until it waits again or ends."""
        for task in self._tasks():
            if go := self.report.waiting.pop(task, None):
                go.set()
        await self.calm()

    async def calm(self) -> None:
        """Let its handlers act until each has ended or waits."""
        # One that is cancelled has yet to hear of it, though it still stands among those that wait.
        while busy := [
            task for task in self._tasks() if task not in self.report.waiting or task.cancelling()
        ]:
            moved = asyncio.ensure_future(self.report.moved.wait())
            await asyncio.wait([*busy, moved], return_when=asyncio.FIRST_COMPLETED)
            moved.cancel()
            self.report.moved.clear()
            await asyncio.sleep(0)

    def _tasks(self) -> list[asyncio.Task[Any]]:
        every = [each.workers for each in self.shift.subscribers.values()]
        return [worker.task for workers in every for worker in workers._all]  # noqa: SLF001 - nobody else can say

    # --- trouble --------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Lose its connections."""
        for line in self.shift.lines:
            if line._connection is not None:  # noqa: SLF001 - as a network does
                line._connection.terminate()  # noqa: SLF001 - as above

    def deafen(self, *, control: bool) -> None:
        """Lose the answer to the next statement that writes: it has its effect, and nobody hears of it."""
        line = self.shift.lines.control if control else self.shift.lines.write
        fetch_as = line.fetch_as

        async def fetch_and_lose(*given: Any) -> Any:
            await fetch_as(*given)
            raise DatabaseUnreachable("the answer was lost")

        setattr(line, "fetch_as", fetch_and_lose)  # noqa: B010 - of this one alone

    # --- what its handlers do -------------------------------------------------------------------------

    def _registration(self, name: str) -> HandlerRegistration:
        led = self

        class Acting:
            async def handle(self, event: Any) -> None:
                await led._act(LOGICAL[name])

        return HandlerRegistration(
            *(name, Acting, HANDLED[LOGICAL[name]]),
            renamed_from=LEDGER if name == BOOK else None,
            retry=SCHEDULE,
            ordered=LOGICAL[name] in ORDERED,
            on_dead="continue" if name == AUDIT else "park",
        )

    async def _act(self, name: str) -> None:
        key = current_delivery().position, name
        # By what it is, not by whose turn it is: who comes first among several is the database's affair.
        plan = self.plans[(key[0] * len(HANDLED) + [*HANDLED].index(name)) % len(self.plans)]
        self.report.note("begun" if self.is_live else "begun in vain", key)
        try:
            for act in plan.split():
                await getattr(self, f"_{act}_")(key)
        except asyncio.CancelledError:
            self.report.failures[key] += self.times_out
            raise
        except Exception:
            self.report.failures[key] += 1
            raise
        self.report.note("succeeded", key)

    async def _commit_(self, key: Key) -> None:
        async with SqlAlchemyUnitOfWork(self.sessions) as uow:
            await uow.session.execute(insert(journal).values(line=f"{key[0]}:{key[1]}"))
            await uow.commit()
        self.report.note("effect", key)

    async def _succeed_(self, _: Key) -> None:
        """Nothing that the outbox's database would know of."""

    async def _fail_(self, _: Key) -> None:
        raise ValueError("as told")

    async def _reject_(self, _: Key) -> None:
        raise Reject("as told")

    async def _wait_(self, _: Key) -> None:
        task, go = asyncio.current_task(), asyncio.Event()
        assert task is not None
        self.report.waiting[task] = go
        self.report.moved.set()
        try:
            await go.wait()
        finally:
            self.report.waiting.pop(task, None)
