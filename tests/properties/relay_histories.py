"""Histories of one outbox and a few relays: what an application, its relays, time and an operator do to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any, TypeVar
from uuid import UUID, uuid4

import attrs
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from outbox_kernel.infrastructure.operations.desk import Desk
from outbox_kernel.infrastructure.operations.mending import Chosen, retry, skip
from outbox_kernel.infrastructure.operations.replaying import rewind
from outbox_kernel.infrastructure.operations.subscriptions import pause, resume
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.relay.lease import Lease
from outbox_kernel.infrastructure.relay.log import Log
from outbox_kernel.infrastructure.relay.retention import Retention
from outbox_kernel.infrastructure.relay.settings import CHANNEL
from outbox_kernel.infrastructure.relay.subscription import Renaming
from outbox_kernel.infrastructure.relay.takeover import Upkeep
from tests.domain import Announced, Noted, Paid
from tests.properties.delivery_law import Law, Put
from tests.properties.led_relays import BOOK, HANDLED, LEDGER, LOGICAL, NEW, OLD, Led
from tests.relaying import TABLES

T = TypeVar("T")

# What takes this long will never end.
DEADLINE_SECONDS = 30.0
RELAYS_MAX = 3
ROUNDS_MAX = 30
# The last belongs to events that nobody numbers; None to events of no aggregate.
AGGREGATES: tuple[UUID | None, ...] = (UUID(int=1), UUID(int=2), UUID(int=20), None)
UNNUMBERED = UUID(int=20)
KINDS = ("bank.noted", "bank.noted", "bank.paid", "bank.noted", "bank.announced")
TYPES = {"bank.noted": Noted, "bank.paid": Paid, "bank.announced": Announced}
PUT = """
INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
                           payload, occurred_at, not_before)
SELECT $1, $2, 1, $3, $4, $5, $6::text::jsonb, clock_timestamp(), CASE WHEN $7 THEN clock_timestamp() END
RETURNING position
"""
TIME_PASSES = "UPDATE outbox_deliveries SET available_at = clock_timestamp() WHERE status = 'waiting'"
LEASE_ENDS = "UPDATE outbox_relays SET expires_at = clock_timestamp() WHERE id = $1"
EVERYBODY_GOES_ON = "UPDATE outbox_subscriptions SET paused_at = NULL, revision = revision + 1"
CHOOSE = """
SELECT event.position, event_id, handler, status FROM outbox_deliveries JOIN outbox_events AS event USING (event_id)
WHERE status = ANY ($1) ORDER BY event.position, handler
"""
UNSETTLED = "SELECT count(*) FROM outbox_deliveries WHERE NOT settled"


@attrs.frozen
class Place:
    """Where histories happen: one loop, one database, and connections of nobody's relay."""

    runner: asyncio.Runner
    engine: AsyncEngine
    sessions: async_sessionmaker[AsyncSession]
    witness: Any
    writer: Any
    stranger: Any

    def run(self, work: Awaitable[T]) -> T:
        """Take a step, whatever it takes, but not for ever."""

        async def done() -> T:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await work

        return self.runner.run(done())


class History:
    """One history. Each action takes which, and a flag; what is not possible does nothing."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.law = Law()
        self.relays: list[Led] = []
        self.subscribed: set[str] = set()
        self.versions: dict[UUID, int] = {}
        self.late: tuple[UUID | None, int, str] | None = None
        self.has_stranger = self.is_renamed = False
        self.plans = ["commit"]

    # --- the application ------------------------------------------------------------------------------

    async def begin(self) -> None:
        # Not by TRUNCATE, which makes files anew.
        await self.place.witness.execute("; ".join(f"DELETE FROM {table}" for table in TABLES))

    async def commit(self, which: int, flag: bool) -> None:
        """One or two events of an aggregate, or of none."""
        aggregate = AGGREGATES[which % len(AGGREGATES)]
        if self.late is not None and aggregate == self.late[0]:
            return  # its row is locked by the transaction that is open
        for number in range(1 + flag):
            kind = KINDS[(which + number) % len(KINDS)]
            self._keep(await self._put(self.place.witness, aggregate, kind), aggregate, kind)

    async def commit_for_later(self, which: int, flag: bool) -> None:
        """An event that is outside its aggregate's order."""
        kind = KINDS[which % len(KINDS)]
        position = await self._put(self.place.witness, UNNUMBERED, kind, waits=True)
        self._keep(position, None, kind)

    async def begin_late(self, which: int, flag: bool) -> None:
        """A transaction takes a position and stays open."""
        if self.late is None:
            aggregate, kind = AGGREGATES[which % 2], KINDS[which % len(KINDS)]
            await self.place.writer.execute("BEGIN")
            self.late = aggregate, await self._put(self.place.writer, aggregate, kind), kind

    async def end_late(self, which: int, flag: bool) -> None:
        """It commits, mostly."""
        if self.late is None:
            return
        (aggregate, position, kind), self.late = self.late, None
        if flag and which % 2:
            await self.place.writer.execute("ROLLBACK")
            if aggregate is not None:
                self.versions[aggregate] -= 1
        else:
            await self.place.writer.execute("COMMIT")
            self._keep(position, aggregate, kind)

    async def meet_stranger(self, which: int, flag: bool) -> None:
        """Somebody who has nothing to do with all this has a transaction open, or ends it."""
        await self.place.stranger.execute(
            "COMMIT" if self.has_stranger else "BEGIN; SELECT pg_current_xact_id()"
        )
        self.has_stranger = not self.has_stranger

    async def _put(self, connection: Any, aggregate: UUID | None, kind: str, *, waits: bool = False) -> int:
        number = None
        if aggregate is not None and aggregate != UNNUMBERED:
            number = self.versions[aggregate] = self.versions.get(aggregate, 0) + 1
        payload = {"what": "x", **({"amount": 1} if kind == "bank.paid" else {})}
        position: int = await connection.fetchval(
            PUT,
            *(uuid4(), kind, "bank.wallet" if aggregate else None, aggregate, number, json.dumps(payload)),
            waits,
        )
        return position

    def _keep(self, position: int, aggregate: UUID | None, kind: str) -> None:
        due = {name for name in self.subscribed if TYPES[kind] in HANDLED[name]}
        self.law.put[position] = Put(aggregate, kind, due)

    # --- the relays -----------------------------------------------------------------------------------

    async def join(self, which: int, flag: bool) -> None:
        """A relay comes, maybe with handlers that nobody had; of older code none after the first of newer code."""
        if len(self.relays) >= RELAYS_MAX:
            return
        versions = NEW if self.is_renamed else (*OLD, *NEW)
        carried = versions[which % len(versions)]
        self.is_renamed = self.is_renamed or BOOK in carried
        relay = Led(
            *(self.place.engine, self.place.sessions, self.law.report, carried),
            batch_size_max=2 if flag else 1000,
        )
        relay.plans = self.plans
        await relay.begin()
        self.relays.append(relay)
        self.subscribed |= {LOGICAL[name] for name in carried}

    async def leave(self, which: int, flag: bool) -> None:
        relay = await self._relay(which)
        await relay.leave()
        self.relays.remove(relay)

    async def vanish(self, which: int, flag: bool) -> None:
        """A relay dies; others find out, or have yet to."""
        relay = await self._relay(which)
        await relay.vanish()
        self.relays.remove(relay)
        await self.place.witness.execute(LEASE_ENDS, relay.lease.relay)
        if flag:
            await self.take_over(which, flag)

    async def sleep_too_long(self, which: int, flag: bool) -> None:
        """A relay is stopped past its lease, and does not know when it goes on."""
        relay = await self._relay(which)
        relay.is_live = False
        await self.place.witness.execute(LEASE_ENDS, relay.lease.relay)
        if flag:
            await self.take_over(which, flag)

    async def cut(self, which: int, flag: bool) -> None:
        (await self._relay(which)).cut()

    async def deafen(self, which: int, flag: bool) -> None:
        (await self._relay(which)).deafen(control=flag)

    async def take_over(self, which: int, flag: bool) -> None:
        """As each relay does now and then."""
        line = Line(self.place.engine)
        log = Log(line, Lease())
        try:
            upkeep = Upkeep(*(log, Renaming.of(log, []), Retention(log, None)), 0.0, CHANNEL, lambda: None)
            await upkeep.take_over()
        finally:
            await line.close()

    async def read(self, which: int, flag: bool) -> None:
        await self._step(which, "read")

    async def deliver(self, which: int, flag: bool) -> None:
        await self._step(which, "deliver" if flag else "deliver_known")

    async def deliver_suspect(self, which: int, flag: bool) -> None:
        await self._step(which, "deliver")
        await self._step(which, "deliver_suspect")

    async def write(self, which: int, flag: bool) -> None:
        await self._step(which, "write")

    async def watch(self, which: int, flag: bool) -> None:
        await self._step(which, "time_out" if flag and which % 2 else "watch")

    async def balance(self, which: int, flag: bool) -> None:
        """Each looks who is there, and takes and gives."""
        for number in range(len(self.relays)):
            await self._step(number, "balance")

    async def let_go_on(self, which: int, flag: bool) -> None:
        await self._step(which, "let_go_on")

    async def move_names(self, which: int, flag: bool) -> None:
        await self._step(which, "move_names")

    async def go_round(self, which: int, flag: bool) -> None:
        await self._step(which, "go_round")

    async def _step(self, which: int, step: str) -> None:
        relay = await self._relay(which)
        relay.plans = self.plans
        await relay.step(getattr(relay, step))

    async def _relay(self, which: int) -> Led:
        if not self.relays:
            await self.join(which, flag=False)
        return self.relays[which % len(self.relays)]

    # --- time and the operator ------------------------------------------------------------------------

    async def wait(self, which: int, flag: bool) -> None:
        """What failed is due again."""
        await self.place.witness.execute(TIME_PASSES)

    async def hold(self, which: int, flag: bool) -> None:
        """Pause a handler, or let it go on."""
        name = [*HANDLED][which % len(HANDLED)]
        if name in self.subscribed:
            await (pause if flag else resume)(self._desk(), self._name_now(name))

    async def mend(self, which: int, flag: bool) -> None:
        """Retry or skip a delivery that an operator may touch."""
        found = await self.place.witness.fetch(CHOOSE, ["waiting", "dead", "skipped"])
        if found:
            await (retry if flag else skip)(self._desk(), [Chosen(*found[which % len(found)])])

    async def go_back(self, which: int, flag: bool) -> None:
        """Have a handler's cursors go back: from there on it is due for all of the log."""
        name = [*HANDLED][which % len(HANDLED)]
        if name not in self.subscribed:
            return
        positions = [0, *sorted(self.law.put)]
        position = positions[len(positions) // 2] if flag else 1
        await rewind(self._desk(), self._name_now(name), position)
        for at, put in self.law.put.items():
            if at >= position and TYPES[put.kind] in HANDLED[name]:
                put.due.add(name)

    def _name_now(self, name: str) -> str:
        return BOOK if name == LEDGER and self.is_renamed else name

    def _desk(self) -> Desk:
        return Desk(self.place.witness)

    # --- the end --------------------------------------------------------------------------------------

    async def end(self) -> None:
        """All relays vanish, one that carries everything comes: it delivers all that there is."""
        if self.late is not None:
            await self.end_late(0, flag=False)
        if self.has_stranger:
            await self.meet_stranger(0, flag=False)
        while self.relays:
            await self.vanish(0, flag=True)
        await self.take_over(0, flag=True)
        await self.place.witness.execute(EVERYBODY_GOES_ON)
        last = Led(self.place.engine, self.place.sessions, self.law.report, NEW[-1], 1000)
        self.subscribed |= set(HANDLED)
        for _ in range(ROUNDS_MAX):
            await self.place.witness.execute(TIME_PASSES)
            await last.relay.run_until_idle()
            await self.law.check(self.place.witness)
            dead = [Chosen(*row) for row in await self.place.witness.fetch(CHOOSE, ["dead"])]
            await retry(self._desk(), dead)
            if not await self.place.witness.fetchval(UNSETTLED):
                self.law.check_end()
                return
        raise AssertionError("it never comes to rest")
