"""A stage for relays under test: events put into the outbox, handlers made of functions, time as it suits."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, Self
from uuid import UUID, uuid4

import asyncpg
import attrs
from lagom import Container
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from outbox_kernel.infrastructure.brokers import Outlet, Publisher
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from outbox_kernel.infrastructure.outbox import relay_tables
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.outbox.sql import leases
from outbox_kernel.infrastructure.outbox.sql.fragments import SHARDS
from outbox_kernel.infrastructure.relay import OutboxRelay, RelaySettings
from outbox_kernel.infrastructure.relay.lease import Lease
from outbox_kernel.infrastructure.relay.log import Log
from outbox_kernel.infrastructure.relay.retention import Retention
from outbox_kernel.infrastructure.relay.settings import CHANNEL
from outbox_kernel.infrastructure.relay.subscription import Carried, CarriedAny, Renaming
from outbox_kernel.infrastructure.relay.takeover import Upkeep
from outbox_kernel.infrastructure.telemetry import Metrics
from outbox_kernel.kernel import DomainEvent
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.bank import Bank
from tests.domain import Noted, journal

Act = Callable[[Any], Awaitable[None]]

LEASE_SECONDS = 15.0
# Tests begin a little ahead of the server's clock, so that what is put into the outbox is due at once.
AHEAD_SECONDS = 60.0
TABLES: tuple[str, ...] = (
    *("outbox_arrivals", "outbox_events", "outbox_deliveries", "outbox_receipts", "outbox_subscriptions"),
    *("outbox_relays", "outbox_cursors", "outbox_progress", "outbox_cursors_past", "outbox_servers"),
    *("bank_wallets", "bank_entries", "bank_journal", "outbox_subject_keys"),
)
PUT = """
INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
                           payload, headers, occurred_at, not_before, source)
SELECT $1, $2, $3, $4, $5, $6, $7::text::jsonb, $8::text::jsonb, clock_timestamp(), $9, $10 RETURNING position
"""
DELIVERIES = """
SELECT event.payload->>'what' AS what, delivery.handler, delivery.status, delivery.attempts, delivery.takeovers
FROM outbox_deliveries AS delivery JOIN outbox_events AS event USING (event_id) ORDER BY event.position, handler
"""
HELD = """
SELECT (SELECT count(lease_relay) FROM {outbox_cursors}), (SELECT count(lease_relay) FROM {outbox_deliveries})
"""
RECEIPTS = """
SELECT event.payload->>'what' AS what, receipt.handler, receipt.outcome
FROM outbox_receipts AS receipt JOIN outbox_events AS event USING (event_id) ORDER BY event.position, handler
"""

# Imported so that the bank's database has them.
assert relay_tables.__name__


def handler(name: str, act: Act, *events: type[DomainEvent], **options: Any) -> HandlerRegistration:
    """A handler made of a function; it stands in no catalogue, so no test meets another's."""

    class Acting:
        async def handle(self, event: Any) -> None:
            await act(event)

    return HandlerRegistration(name, Acting, events or (Noted,), **options)


@attrs.define(eq=False)
class Recorder:
    """Takes notes of what it is given, and does what it was told to do for that event."""

    seen: list[str] = attrs.Factory(list)
    troubles: dict[str, list[BaseException]] = attrs.Factory(dict)

    async def __call__(self, event: Any) -> None:
        self.seen.append(event.what)
        if waiting := self.troubles.get(event.what):
            raise waiting.pop(0)

    def fail(self, what: str, *errors: BaseException, times: int = 1) -> Recorder:
        """Fail so often for this event, with these errors one after the other."""
        self.troubles.setdefault(what, []).extend(errors or [ValueError(f"no {what} today")] * times)
        return self


class FromBeginning(OutboxRelay):
    """A relay whose new subscriptions get all of the log."""

    def _carried(self) -> list[CarriedAny]:
        return [
            attrs.evolve(each, registration=attrs.evolve(each.registration, start="beginning"))
            if isinstance(each, Carried)
            else attrs.evolve(each, from_beginning=True)
            for each in super()._carried()
        ]


def carrying(*names: str) -> Any:
    """What a claim asks of subscribers."""
    of_all = {"kind": "handler", "abilities": {"bank.noted": 1}, "renamed_from": None, "on_dead": "park"}
    return {
        name: SimpleNamespace(carried=SimpleNamespace(name=name, **of_all), takes_deliveries=True)
        for name in names
    }


@attrs.define(eq=False)
class Stage:
    """One outbox, and all that a test does to it and asks of it."""

    engine: AsyncEngine
    witness: Any
    start: datetime
    sessions: async_sessionmaker[AsyncSession]
    container: Container
    relays: list[Any] = attrs.Factory(list)
    lines: list[Line] = attrs.Factory(list)
    versions: dict[UUID, int] = attrs.Factory(dict)

    @classmethod
    async def on(cls, engine: AsyncEngine, witness: Any) -> Self:
        await witness.execute(f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY")
        now = await witness.fetchval("SELECT clock_timestamp()")
        sessions = Bank.on(engine).sessions
        container = Container()
        container[async_sessionmaker] = sessions
        return cls(engine, witness, now + timedelta(seconds=AHEAD_SECONDS), sessions, container)

    # --- what happens ---------------------------------------------------------------------------------

    async def put(  # noqa: PLR0913 - options, each by its name
        self,
        *whats: str,
        of: UUID | None = None,
        event_type: str = "bank.noted",
        version: int = 1,
        numbered: bool = True,
        payload: str | None = None,
        headers: dict[str, Any] | None = None,
        not_before: datetime | None = None,
        source: str | None = None,
        by: Any = None,
    ) -> None:
        """Commit events, of one aggregate if one is given; with a source, as that queue brings them."""
        for what in whats:
            number = None
            if of is not None and numbered:
                number = self.versions[of] = self.versions.get(of, 0) + 1
            await (by or self.witness).fetchval(
                PUT,
                *(uuid4(), event_type, version, "bank.wallet" if of else None, of, number),
                *(json.dumps({"what": what}) if payload is None else payload, json.dumps(headers or {})),
                *(not_before, source),
            )

    def uow(self) -> SqlAlchemyUnitOfWork:
        return SqlAlchemyUnitOfWork(self.sessions)

    async def enter(self, line: str) -> None:
        """Commit a line in the journal through a unit of work, as a handler does."""
        async with self.uow() as uow:
            await uow.session.execute(insert(journal).values(line=line))
            await uow.commit()

    # --- relays ---------------------------------------------------------------------------------------

    def at(self, seconds: float) -> datetime:
        return self.start + timedelta(seconds=seconds)

    def relay(
        self,
        *handlers: HandlerRegistration,
        at: float | None = 0,
        from_beginning: bool = True,
        publishers: Mapping[Publisher, Outlet] | None = None,
        metrics: Metrics | None = None,
        **settings: Any,
    ) -> OutboxRelay:
        """A relay that carries these, from the beginning of the log on or from now on; at None: the server's time."""
        chosen: dict[str, Any] = {"lease_seconds": LEASE_SECONDS, **settings}
        relay = (FromBeginning if from_beginning else OutboxRelay)(
            self.engine,
            self.container,
            handlers=handlers,
            publishers=publishers,
            settings=RelaySettings(**chosen),
            deliver_to_nobody=not (handlers or publishers),
            metrics=metrics,
            now=None if at is None else self.at(at),
        )
        self.relays.append(relay)
        return relay

    async def drain(self, *handlers: HandlerRegistration, at: float = 0, **settings: Any) -> None:
        """Deliver all that is due at that time."""
        await self.relay(*handlers, at=at, **settings).run_until_idle()

    def line(self) -> Line:
        line = Line(self.engine)
        self.lines.append(line)
        return line

    async def log(self, *, at: float = 0) -> Log:
        """The log under the lease of a relay that does nothing else."""
        log = self.log_under(Lease(), at=at)
        await log.run(
            leases.REGISTER,
            lease_seconds=LEASE_SECONDS,
            process_id=1,
            host="here",
            code_version="1",
            abilities="{}",
            patterns="{}",
            takes_events=True,
        )
        return log

    def log_under(self, lease: Lease, *, at: float = 0) -> Log:
        """What a relay under that lease does at that time."""
        return Log(self.line(), lease, None, self.at(at))

    async def owner_that_vanishes(self, *names: str, at: float = 0) -> Log:
        """A relay that takes all cursors of these subscriptions and is never heard of again."""
        log = await self.log(at=at)
        await log.take((name, shard) for name in names for shard in range(SHARDS))
        return log

    async def take_over(self, *, at: float) -> tuple[int, int]:
        """What each relay does now and then: end leases that ran out by then, free what they held."""
        log = self.log_under(Lease(), at=at)
        cursors, deliveries = await self._held()
        upkeep = Upkeep(log, Renaming.of(log, []), Retention(log, None), 0.0, CHANNEL, lambda: None)
        await upkeep.take_over()
        cursors_left, deliveries_left = await self._held()
        return cursors - cursors_left, deliveries - deliveries_left

    async def rewind(self) -> None:
        """As after a crash between handlers' commits and the progress that was to follow: all is read again."""
        await self.witness.execute("UPDATE outbox_cursors SET rewind_to = 0")

    # --- what holds then ------------------------------------------------------------------------------

    async def events(self) -> dict[str, str]:
        """Status of each event."""
        rows = await self.witness.fetch(
            "SELECT payload->>'what' AS what, status.status FROM outbox_events "
            "JOIN outbox_status AS status USING (event_id) ORDER BY position"
        )
        return {row["what"]: row["status"] for row in rows}

    async def deliveries(self) -> dict[tuple[str, str], str]:
        """Status of each delivery, by event and handler."""
        return {(row["what"], row["handler"]): row["status"] for row in await self.witness.fetch(DELIVERIES)}

    async def delivery(self, what: str, name: str) -> Any:
        """One delivery's row."""
        [row] = [
            row
            for row in await self.witness.fetch(DELIVERIES)
            if (row["what"], row["handler"]) == (what, name)
        ]
        return row

    async def event(self, what: str) -> Any:
        """One event's row."""
        return await self.witness.fetchrow("SELECT * FROM outbox_events WHERE payload->>'what' = $1", what)

    async def receipts(self) -> list[tuple[str, str, str]]:
        """Event, handler and outcome of each receipt."""
        return [tuple(row) for row in await self.witness.fetch(RECEIPTS)]

    async def journal(self) -> list[str]:
        """The lines that committed, sorted."""
        rows: list[str] = [
            row["line"] for row in await self.witness.fetch("SELECT line FROM bank_journal ORDER BY line")
        ]
        return rows

    async def _held(self) -> tuple[int, int]:
        [held] = await self.line().fetch(HELD)
        return tuple(held)

    async def owners(self, name: str) -> dict[UUID | None, int]:
        """How many cursors of a subscription each relay owns."""
        rows = await self.witness.fetch(
            "SELECT lease_relay, count(*) FROM outbox_cursors WHERE subscription = $1 GROUP BY 1", name
        )
        return {row["lease_relay"]: row["count"] for row in rows}

    async def status(self, what: str) -> Any:
        """What became of one event."""
        return await self.witness.fetchrow(
            "SELECT status.* FROM outbox_events JOIN outbox_status AS status USING (event_id) "
            "WHERE payload->>'what' = $1",
            what,
        )

    async def close(self) -> None:
        for relay in self.relays:
            await relay._end()  # noqa: SLF001 - whatever the test left of it
        for line in self.lines:
            await line.close()


async def connected(url: str) -> Any:
    return await asyncpg.connect(url)
