"""The roles that docs/reference/outbox-table.md grants rights to, each at all of its work."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import uuid4

import asyncpg
import pytest
from attrs import frozen
from lagom import Container
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from outbox_kernel.errors import ConcurrencyError
from outbox_kernel.infrastructure.brokers.received import Received
from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork, session_factory
from outbox_kernel.infrastructure.http.health import Health
from outbox_kernel.infrastructure.inbox.storing import Storage
from outbox_kernel.infrastructure.operations import Desk, Selection, stories
from outbox_kernel.infrastructure.operations.desk import in_sentences
from outbox_kernel.infrastructure.operations.forgetting import forget
from outbox_kernel.infrastructure.operations.health_of_keys import examine_keys
from outbox_kernel.infrastructure.operations.health_of_rights import examine_rights
from outbox_kernel.infrastructure.operations.mending import choose_for_retry, choose_for_skip, retry, skip
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.operations.purging import purge
from outbox_kernel.infrastructure.operations.replaying import replay, rewind
from outbox_kernel.infrastructure.operations.rewrapping import rewrap
from outbox_kernel.infrastructure.operations.subscriptions import pause, resume, retire, retire_pattern
from outbox_kernel.infrastructure.operations.verdicts import Check
from outbox_kernel.infrastructure.outbox import OutboxMiddleware
from outbox_kernel.infrastructure.outbox.migrator import pending
from outbox_kernel.infrastructure.outbox.own_connection import Line
from outbox_kernel.infrastructure.outbox.sealing.requiring import in_force
from outbox_kernel.infrastructure.outbox.sql import leases
from outbox_kernel.infrastructure.outbox.sql.fragments import SHARDS
from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.infrastructure.relay.lease import Lease
from outbox_kernel.infrastructure.relay.log import Log
from outbox_kernel.infrastructure.relay.retention import Retention
from outbox_kernel.infrastructure.relay.settings import CHANNEL
from outbox_kernel.infrastructure.relay.subscription import Renaming
from outbox_kernel.infrastructure.relay.takeover import Upkeep
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel import EventBus, Reject
from outbox_kernel.kernel.retry import TIERED
from outbox_kernel.kernel.serialization import serialize_event
from tests.commands import ROOT
from tests.domain import Announced, Noted, Wallet
from tests.relaying import Recorder, handler
from tests.whispers import SECRET, Whispered

PAGE = (ROOT / "docs" / "reference" / "outbox-table.md").read_text()
GRANTS = re.findall(r"`(GRANT .+)` \|$", PAGE, re.MULTILINE)
ROLES = ("app", "api", "plain", "reader", "relay", "worker", "consumer", "viewer", "operator")
SETTINGS = Settings(contexts=(), outbox_schema="events")
ADA = uuid4()


@frozen
class Right:
    """One right of a role, as small as it can be taken away."""

    what: str
    """`SELECT ON outbox_events`, or the role whose rights these are."""

    def taken_from(self, role: str, names: Mapping[str, str]) -> str:
        return f"REVOKE {names.get(self.what, self.what)} FROM {names[role]}"

    def given_to(self, role: str, names: Mapping[str, str]) -> str:
        return f"GRANT {names.get(self.what, self.what)} TO {names[role]}"

    @property
    def refusal(self) -> str:
        """How the sentence goes that says it is missing."""
        kind, _, of = self.what.rpartition(" ON ")
        # Without the right to use a schema of the search path the server only finds nothing there.
        no_schema = "set OUTBOX_SCHEMA if its tables are in a schema .* without USAGE"
        if of.startswith("SCHEMA"):
            return f"lacks a right in .*permission denied for schema events|{no_schema}"
        refusal = r"lacks a right in .*permission denied for (table|view|sequence) "
        return rf"{refusal}{of.split()[-1]}\b" if kind else f"{refusal}|{no_schema}"


def rights_of(role: str) -> list[Right]:
    """Each right that the page grants to this role itself."""
    return [
        right
        for grant in GRANTS
        for given, _, to in [grant.removeprefix("GRANT ").rpartition(" TO ")]
        if role in to.split(", ")
        for right in _rights_in(given)
    ]


def _rights_in(given: str) -> Iterator[Right]:
    rights, on, tables = given.partition(" ON ")
    if not on:
        yield Right(given)  # what another role has
    for each in re.finditer(r"([A-Z]+)(?: \((.+?)\))?", rights if on else ""):
        columns = [f"{each[1]} ({column})" for column in (each[2] or "").split(", ") if column]
        for right in columns or [each[1]]:
            for table in tables.split(", "):
                yield Right(f"{right} ON {table}")


class Office:
    """The outbox as the roles of the page see it, each at its own work."""

    def __init__(self, engines: dict[str, AsyncEngine]) -> None:
        self.engines = engines

    async def app(self) -> None:
        """Commit aggregates with events and without, one anew under its id, and lose a conflict."""
        sessions = session_factory(self.engines["app"])
        uow, other = SqlAlchemyUnitOfWork(sessions), SqlAlchemyUnitOfWork(sessions)
        wallet = Wallet.open()
        async with uow:
            uow.repository(Wallet).add(wallet)
            uow.emit(Whispered("opened", ADA))
            await uow.commit()
        async with uow, other:
            first, second = [await each.repository(Wallet).get(wallet.id) for each in (uow, other)]
            assert first is not None
            assert second is not None
            first.pay(1)
            second.pay(2)
            await uow.commit()
            with pytest.raises(ConcurrencyError):
                await other.commit()
            await uow.repository(Wallet).remove(first)
            await uow.commit()
        async with uow:
            uow.repository(Wallet).add(Wallet(uuid4(), "has nothing to tell"))
            await uow.commit()
            uow.repository(Wallet).add(Wallet(wallet.id, "was there before"))
            with pytest.raises(ConcurrencyError):
                await uow.commit()

    async def api(self) -> None:
        """Say that it is ready, and serve a request."""
        health = Health(build_container(SETTINGS, self.engines["api"]), lambda: False)
        await health.require_ready()
        async with SqlAlchemyUnitOfWork(session_factory(self.engines["api"])) as uow:
            uow.repository(Wallet).add(Wallet.open())
            await uow.commit()

    async def plain(self) -> None:
        """Write events without capture."""
        bus = EventBus()
        bus.emit(Announced("by hand"))
        bus.emit(Whispered("by hand", ADA))
        with in_sentences(self.engines["plain"].url):
            async with AsyncSession(self.engines["plain"]) as session, session.begin():
                assert await OutboxMiddleware.flush(session, bus) == 2

    async def reader(self) -> None:
        """Look what is delivered."""
        with in_sentences(self.engines["reader"].url):
            async with self.engines["reader"].connect() as connection:
                await connection.execute(text("SELECT id, payload, delivered FROM outbox LIMIT 10"))

    async def relay(self) -> None:
        """Deliver what succeeds, fails once and is dead, move a former name, take over, and purge."""
        engine, container = self.engines["relay"], Container()
        container[async_sessionmaker] = sessions = session_factory(engine)

        async def succeed(_: Noted) -> None:
            async with SqlAlchemyUnitOfWork(sessions) as uow:
                await uow.session.execute(text("SELECT pg_current_xact_id()"))  # as what writes has
                await uow.commit()

        async def fail(_: Noted) -> None:
            raise Reject("no")

        await self._put()
        assert await pending(engine, SETTINGS) == []
        await self._leave_a_lease("done")
        line = Line(engine)
        try:
            log = Log(line, Lease())
            keeper = Retention(log, 0.0)
            await Upkeep(log, Renaming.of(log, []), keeper, 0.0, CHANNEL, lambda: None).take_over()
            handlers = [
                handler("done", succeed, renamed_from="former"),
                handler("again", Recorder().fail("what"), retry=TIERED),
                handler("dead", fail, Noted, Announced),
                handler("told", _hear, Whispered),
            ]
            await OutboxRelay(engine, container, handlers=handlers).run_until_idle()
            while await keeper.step():
                pass
        finally:
            await line.close()
        assert not await self._count("outbox_relays"), "a lease stays behind"

    async def worker(self) -> None:
        """Commit an effect as another role than the relay."""
        sessions = session_factory(self.engines["worker"])

        async def tell(_: Noted) -> None:
            async with SqlAlchemyUnitOfWork(sessions) as uow:
                uow.emit(Announced("told"))
                await uow.commit()

        await self._put()
        relay = OutboxRelay(self.engines["relay"], Container(), handlers=[handler("tell", tell)])
        counts = await relay.run_until_idle()
        assert not counts.failed, "its handler has failed"

    async def consumer(self) -> None:
        """Store what came through two queues, for a handler of each."""
        event = Received(uuid4(), "bank.noted", 1, None, None, None, "{}", "{}", datetime.now(UTC))
        told = Whispered("what", uuid4())
        payload = serialize_event(told)
        sealed = event._replace(event_id=told.event_id, event_type="whisper.told", payload=payload)
        queues = ["one", "another"]
        handlers = [handler(f"of {queue}", _succeed, queue=queue) for queue in queues]
        relay = OutboxRelay(self.engines["consumer"], Container(), handlers=handlers, queues=queues)
        await relay.run_until_idle()
        line = Line(self.engines["consumer"])
        try:
            for queue in queues:
                await Storage(queue).store(line, [event])
            await Storage("one").store(line, [sealed])
        finally:
            await line.close()

    async def viewer(self) -> None:
        """Look at the whole and at one event."""
        await self._put()
        assert await pending(self.engines["viewer"], SETTINGS) == []
        async with self._desk("viewer") as desk:
            await overview(desk)
            await stories.failed(desk, 1)
            (event,) = await stories.events(desk, limit=1)
            await stories.show(desk, event.event_id)
            await examine_keys(desk, SETTINGS)

    async def doctor_on_rights(self, role: str) -> list[Check]:
        """What the doctor says to a role of its rights."""
        async with self._desk(role) as desk:
            return await examine_rights(desk)

    async def operator(self) -> None:
        """Mend what has failed, in every way there is."""
        await self.relay()
        await self.relay()  # which is due for what was put by now
        async with self._desk("operator") as desk:
            (event,) = await stories.events(desk, status="dead", limit=1)
            await replay(desk, "dead", event_id=event.event_id)
            await retry(desk, await choose_for_retry(desk, Selection(handler="dead")))
            await skip(desk, await choose_for_skip(desk, Selection(handler="dead"), all_waiting=True))
            await pause(desk, "dead")
            await resume(desk, "dead")
            await rewind(desk, "dead", 1, again=True)
            await retire_pattern(desk, "dead", "bank.announced")
            await retire(desk, "dead")
            await purge(desk, 0)
            await forget(desk, str(ADA))
            masters = in_force(None)
            assert masters is not None
            await rewrap(desk, masters)

    async def _put(self) -> None:
        async with SqlAlchemyUnitOfWork(session_factory(self.engines["app"])) as uow:
            uow.emit(Noted("what"))
            uow.emit(Whispered("what", ADA))
            await uow.commit()

    async def _leave_a_lease(self, name: str) -> None:
        """Leave what a relay has left that was killed an hour ago."""
        line = Line(self.engines["owner"])
        try:
            log = Log(line, Lease(), now=datetime.now(UTC) - timedelta(hours=1))
            await log.run(
                leases.REGISTER,
                lease_seconds=1.0,
                process_id=1,
                host="gone",
                code_version="1",
                abilities="{}",
                patterns="{}",
                takes_events=True,
            )
            await log.take((name, shard) for shard in range(SHARDS))
        finally:
            await line.close()

    async def _count(self, table: str) -> int:
        async with self.engines["owner"].connect() as connection:
            return int(await connection.scalar(text(f"SELECT count(*) FROM {table}")) or 0)

    @asynccontextmanager
    async def _desk(self, role: str) -> AsyncIterator[Desk]:
        """A desk, as commands have one."""
        with in_sentences(self.engines[role].url):
            async with self.engines[role].connect() as connection:
                raw = await connection.get_raw_connection()
                yield Desk(cast("asyncpg.Connection", raw.driver_connection))


async def _succeed(_: Noted) -> None: ...


async def _hear(event: Whispered) -> None:
    assert event.secret in (SECRET, None)
