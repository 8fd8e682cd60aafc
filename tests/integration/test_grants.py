"""The rights that docs/reference/outbox-table.md names are enough, and each of them is needed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import cast
from uuid import uuid4

import asyncpg
import pytest
from lagom import Container
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from outbox_kernel.errors import ConcurrencyError
from outbox_kernel.infrastructure.dashboard import Dashboard
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork, create_engine, session_factory
from outbox_kernel.infrastructure.errors import PermissionDenied
from outbox_kernel.infrastructure.inbox.messages import Received
from outbox_kernel.infrastructure.inbox.storing import Storage
from outbox_kernel.infrastructure.operations import Desk, Selection, stories
from outbox_kernel.infrastructure.operations.forgetting import forget
from outbox_kernel.infrastructure.operations.health_of_keys import examine_keys
from outbox_kernel.infrastructure.operations.mending import choose_for_retry, choose_for_skip, retry, skip
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.operations.purging import purge
from outbox_kernel.infrastructure.operations.replaying import replay, rewind
from outbox_kernel.infrastructure.operations.rewrapping import rewrap
from outbox_kernel.infrastructure.operations.subscriptions import pause, resume, retire, retire_pattern
from outbox_kernel.infrastructure.outbox import OutboxMiddleware
from outbox_kernel.infrastructure.outbox.migrator import migrate, pending
from outbox_kernel.infrastructure.outbox.sealing.requiring import in_force
from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.infrastructure.relay.lease import Lease
from outbox_kernel.infrastructure.relay.line import Line
from outbox_kernel.infrastructure.relay.log import Log
from outbox_kernel.infrastructure.relay.retention import Retention
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel import EventBus, Reject
from outbox_kernel.kernel.serialization import serialize_event
from tests.commands import ROOT
from tests.domain import Announced, Noted, Wallet, bank_metadata
from tests.relaying import handler
from tests.visiting import visiting
from tests.whispers import SECRET, Whispered

PAGE = (ROOT / "docs" / "reference" / "outbox-table.md").read_text()
GRANTS = re.findall(r"`(GRANT .+)` \|$", PAGE, re.MULTILINE)
ROLES = ("app", "plain", "reader", "relay", "worker", "consumer", "viewer", "operator")
SETTINGS = Settings(contexts=(), outbox_schema="events")
ADA = uuid4()
OF_ITS_OWN_TABLES = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {}"


@pytest.fixture
async def owner(empty_postgres_url: str) -> AsyncIterator[AsyncEngine]:
    """The database with the outbox in `events` and the bank in `public`, by the role that migrates."""
    engine = create_engine(empty_postgres_url)
    await migrate(engine, SETTINGS)
    async with engine.begin() as connection:
        await connection.run_sync(bank_metadata.create_all)
    yield engine
    await engine.dispose()


@pytest.fixture
async def engines(owner: AsyncEngine) -> AsyncIterator[dict[str, AsyncEngine]]:
    """An engine for each role of the page; roles are the whole server's, so their names are of this test."""
    names = {role: f"outbox_{role}_{uuid4().hex}" for role in ROLES}
    async with owner.begin() as connection:
        await connection.execute(text("SET LOCAL search_path = events"))
        for name in names.values():
            await connection.execute(text(f"CREATE ROLE {name}"))
        for grant in (*GRANTS, *(OF_ITS_OWN_TABLES.format(role) for role in ("app", "plain"))):
            await connection.execute(
                text(re.sub(rf"\b({'|'.join(ROLES)})\b", lambda role: names[role[0]], grant))
            )
    settings = {role: {"role": name, "search_path": "events, public"} for role, name in names.items()}
    found = {
        role: create_engine(owner.url, connect_args={"server_settings": each})
        for role, each in settings.items()
    }
    yield found
    for engine in found.values():
        await engine.dispose()
    async with owner.begin() as connection:
        for name in names.values():
            await connection.execute(text(f"DROP OWNED BY {name}"))
            await connection.execute(text(f"DROP ROLE {name}"))


async def read(engine: AsyncEngine, table: str) -> int:
    async with engine.connect() as connection:
        return int(await connection.scalar(text(f"SELECT count(*) FROM {table}")) or 0)


def test_the_page_names_a_grant_for_every_role() -> None:
    assert {role for grant in GRANTS for role in grant.partition(" TO ")[2].split(", ")} == {*ROLES}


async def test_the_application_lives_with_what_it_is_granted(
    engines: dict[str, AsyncEngine], owner: AsyncEngine
) -> None:
    sessions = session_factory(engines["app"])
    uow, other = SqlAlchemyUnitOfWork(sessions), SqlAlchemyUnitOfWork(sessions)
    wallet = Wallet.open()
    async with uow:
        uow.repository(Wallet).add(wallet)
        uow.emit(Announced("opened"))
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
        uow.repository(Wallet).add(Wallet(uuid4(), "has nothing to tell"))
        await uow.commit()
    assert await read(owner, "events.outbox_events") == 3
    for secret in ("payload", "headers", "event_type"):
        with pytest.raises(DBAPIError, match="permission denied"):
            await read(engines["app"], f"(SELECT {secret} FROM outbox_events) AS told")


async def test_an_aggregate_without_events_needs_the_right_to_ask_whether_its_id_is_taken(
    engines: dict[str, AsyncEngine], owner: AsyncEngine
) -> None:
    sessions = session_factory(engines["app"])
    async with engines["app"].connect() as connection:
        role = await connection.scalar(text("SELECT current_user"))
    async with owner.begin() as connection:
        columns = "aggregate_type, aggregate_id, aggregate_version"
        await connection.execute(text(f"REVOKE SELECT ({columns}) ON events.outbox_events FROM {role}"))
    async with SqlAlchemyUnitOfWork(sessions) as uow:
        uow.repository(Wallet).add(Wallet.open("told"))
        await uow.commit()
        uow.repository(Wallet).add(Wallet(uuid4(), "silent"))
        with pytest.raises(PermissionDenied, match=r"lacks a right .*outbox_events"):
            await uow.commit()


async def test_a_conflict_is_one_though_the_server_may_not_say_over_what(
    engines: dict[str, AsyncEngine], owner: AsyncEngine
) -> None:
    """C4: it names the key to those alone who may read it."""
    role = await _name_of(engines["app"])
    async with owner.begin() as connection:
        columns = "aggregate_type, aggregate_id, aggregate_version"
        await connection.execute(text(f"REVOKE SELECT ({columns}) ON events.outbox_events FROM {role}"))
    sessions = session_factory(engines["app"])
    async with sessions() as session, sessions() as rival:
        session.add(wallet := Wallet.open())
        await session.commit()
        theirs = await rival.get_one(Wallet, wallet.id)
        wallet.pay(1)
        await session.commit()
        theirs.pay(2)
        with pytest.raises(ConcurrencyError, match="another transaction wrote this aggregate first; load it"):
            await rival.commit()


async def test_events_written_by_hand_need_the_right_to_read_as_well(engines: dict[str, AsyncEngine]) -> None:
    async def by_hand(role: str) -> int:
        bus = EventBus()
        bus.emit(Announced("by hand"))
        bus.emit(Whispered("by hand", ADA))
        async with AsyncSession(engines[role]) as session, session.begin():
            return await OutboxMiddleware.flush(session, bus)

    assert await by_hand("plain") == 2
    with pytest.raises(DBAPIError, match="permission denied"):
        await by_hand("app")


async def test_a_reader_of_the_view_sees_nothing_else(engines: dict[str, AsyncEngine]) -> None:
    assert await read(engines["reader"], "outbox") == 0
    with pytest.raises(DBAPIError, match="permission denied"):
        await read(engines["reader"], "outbox_events")


async def test_without_its_grant_the_application_is_told(
    engines: dict[str, AsyncEngine], owner: AsyncEngine
) -> None:
    async with owner.begin() as connection:
        role = await _name_of(engines["app"])
        await connection.execute(text(f"REVOKE INSERT ON events.outbox_events FROM {role}"))
    uow = SqlAlchemyUnitOfWork(session_factory(engines["app"]))
    async with uow:
        uow.repository(Wallet).add(Wallet.open())
        with pytest.raises(PermissionDenied, match="permission denied for table outbox_events"):
            await uow.commit()


def rights_of(role: str) -> list[tuple[str, str]]:
    """Each right to a table or sequence that the page grants to this role itself, and which that is."""
    written = r"GRANT ([A-Z, ]+(?:\(created_at\))?) ON (?!SCHEMA)(.+) TO (.+)"
    found = [re.fullmatch(written, grant) for grant in GRANTS]
    return [
        (right, re.sub(r"(\w+)$", r"events.\1", table))
        for each in found
        if each is not None and role in each[3].split(", ")
        for right in each[1].split(", ")
        for table in each[2].split(", ")
    ]


class Office:
    """The outbox as the roles of the page see it, each at its own work."""

    def __init__(self, engines: dict[str, AsyncEngine]) -> None:
        self.engines = engines

    async def relay(self) -> None:
        """Deliver a success and a failure, move a former name, and purge."""
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
        leases = await read(self.engines["viewer"], "outbox_relays")
        handlers = [
            handler("done", succeed, renamed_from="former"),
            handler("dead", fail, Noted, Announced),
            handler("told", _hear, Whispered),
        ]
        await OutboxRelay(engine, container, handlers=handlers).run_until_idle()
        if await read(self.engines["viewer"], "outbox_relays") > leases:
            raise PermissionDenied("its lease stays behind")
        line = Line(engine)
        try:
            keeper = Retention(Log(line, Lease()), 0.0)
            while await keeper.step():
                pass
        finally:
            await line.close()

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
        if counts.failed:
            raise PermissionDenied("its handler failed")

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

    @asynccontextmanager
    async def _desk(self, role: str) -> AsyncIterator[Desk]:
        async with self.engines[role].connect() as connection:
            raw = await connection.get_raw_connection()
            yield Desk(cast("asyncpg.Connection", raw.driver_connection))


@pytest.mark.parametrize("role", ["relay", "worker", "consumer", "viewer", "operator"])
async def test_each_right_of_those_who_deliver_and_mend_is_enough_and_needed(
    role: str, engines: dict[str, AsyncEngine], owner: AsyncEngine
) -> None:
    """O1: with the grants of the page each does its whole work, and with any of them missing it does not."""
    work, name = getattr(Office(engines), role), await _name_of(engines[role])
    await work()
    for right, table in rights_of(role):
        async with owner.begin() as connection:
            await connection.execute(text(f"REVOKE {right} ON {table} FROM {name}"))
        with pytest.raises((PermissionDenied, asyncpg.InsufficientPrivilegeError, DBAPIError)):
            await work()
            pytest.fail(f"{role} does not need {right} on {table}")
        async with owner.begin() as connection:
            await connection.execute(text(f"GRANT {right} ON {table} TO {name}"))
            # A relay that lacked a right may not have given back what it held.
            await connection.execute(text("DELETE FROM events.outbox_relays"))
            await connection.execute(text("UPDATE events.outbox_cursors SET lease_relay = NULL"))
            # As after a move to another server.
            await connection.execute(text("UPDATE events.outbox_servers SET identifier = 'another'"))


async def _succeed(_: Noted) -> None: ...


async def _hear(event: Whispered) -> None:
    assert event.secret in (SECRET, None)


async def _name_of(engine: AsyncEngine) -> str:
    async with engine.connect() as connection:
        return str(await connection.scalar(text("SELECT current_role")))


async def test_who_looks_by_the_dashboard_needs_no_more_than_a_viewer_has(
    engines: dict[str, AsyncEngine], owner: AsyncEngine
) -> None:
    uow = SqlAlchemyUnitOfWork(session_factory(engines["app"]))
    async with uow:
        uow.repository(Wallet).add(Wallet.open())
        uow.emit(Announced("opened"))
        await uow.commit()
    dashboard = Dashboard(SETTINGS, engines["viewer"])
    async with visiting(dashboard) as visitor:
        for path in ("/", "/events?text=a", "/events/1", "/subscriptions", "/dead-letters", "/relays"):
            await visitor.get(path)
        await visitor.get("/confirm/purge?days=1")
        await visitor.get("/aggregate?key=bank.wallet:1", 404)
        # What is more than to look is refused by the server, too.
        page = await visitor.get("/confirm/purge?days=1")
        assert (await visitor.send(page.form("/do/purge"), follow=False)).status_code == 503
