"""The one object: it finds the application, reads the settings, and refuses what the command refuses (D2, D3)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from lagom import Container
from sqlalchemy import create_engine as sync_engine
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from outbox_kernel import (
    EventBus,
    Outbox,
    Settings,
    SqlAlchemyUnitOfWork,
    UnitOfWork,
    bus_of,
    create_engine,
    handles,
)
from outbox_kernel.errors import (
    ArgumentRefused,
    BadContext,
    BadSetting,
    DatabaseUnreachable,
    DiscoveryError,
    EngineRefused,
    HandlerNotBuilt,
    NothingToDeliverTo,
    SchemaNotMigrated,
)
from outbox_kernel.infrastructure.relay import RelaySettings
from tests.context_on_disk import HANDLERS, Shop

Ask = Callable[..., Awaitable[list[Any]]]

STATUSES = "SELECT status FROM outbox_events JOIN outbox_status USING (event_id) ORDER BY position"

# Needs something of the container, of which each test says how it is made.
NEEDY = """
from outbox_kernel import handles
from {name}.events import Ordered

seen = []


class Mailer:
    def __init__(self, sender: str) -> None:
        self.sender = sender


@handles(Ordered, name="shop.Pack")
class Pack:
    def __init__(self, mailer: Mailer) -> None:
        self.mailer = mailer

    async def handle(self, event: Ordered) -> None:
        seen.append(f"{self.mailer.sender}: {event.what}")
"""


async def order(outbox: Outbox, shop: Shop, what: str) -> None:
    async with outbox.unit_of_work() as uow:
        uow.emit(shop.ordered(what))
        await uow.commit()


# --- what it gives ---------------------------------------------------------------------------------------


async def test_what_commits_reaches_handlers_that_nobody_imported(
    outbox: Outbox, shop: Shop, ask: Ask
) -> None:
    await order(outbox, shop, "cake")
    assert shop.seen == []
    await outbox.relay().run_until_idle()
    assert (shop.seen, await ask(STATUSES)) == (["cake"], ["delivered"])


async def test_its_sessions_and_those_it_is_attached_to_capture(outbox: Outbox, shop: Shop) -> None:
    own = async_sessionmaker(outbox.engine, expire_on_commit=False)
    assert outbox.attach(own) is own
    for open_session in (outbox.session, own):
        async with open_session() as session:
            bus_of(session).emit(shop.ordered("cake"))
            await session.commit()
    await outbox.relay().run_until_idle()
    assert shop.seen == ["cake", "cake"]


async def test_a_synchronous_script_over_psycopg_is_attached_as_well(
    outbox: Outbox, shop: Shop, empty_postgres_url: str
) -> None:
    engine = sync_engine(make_url(empty_postgres_url).set(drivername="postgresql+psycopg"))
    own = outbox.attach(sessionmaker(engine))
    with own() as session:
        bus_of(session).emit(shop.ordered("bread"))
        session.commit()
    engine.dispose()
    await outbox.relay().run_until_idle()
    assert shop.seen == ["bread"]


async def test_a_session_without_capture_is_given_events_by_hand(
    outbox: Outbox, shop: Shop, ask: Ask
) -> None:
    bus = EventBus()
    bus.emit(shop.ordered("tea"))
    async with async_sessionmaker(outbox.engine)() as session:
        await outbox.dispatch(session, bus.collect())
        assert await ask(STATUSES) == []
        await session.commit()
    assert await ask(STATUSES) == ["pending"]


async def test_all_of_it_lives_in_the_schema_of_the_settings(
    shop: Shop, empty_postgres_url: str, ask: Ask
) -> None:
    settings = Settings(database_url=empty_postgres_url, outbox_schema="events", contexts=(shop.name,))
    outbox = Outbox(settings=settings)
    await outbox.migrate()
    own = outbox.attach(async_sessionmaker(outbox.engine))
    async with own() as session:
        bus_of(session).emit(shop.ordered("cake"))
        await session.commit()
    await outbox.relay().run_until_idle()
    assert (shop.seen, (await outbox.status()).backlog.delivered) == (["cake"], 1)
    assert await ask("SELECT status FROM events.outbox_status") == ["delivered"]
    await outbox.close()


async def test_status_is_what_the_command_shows(outbox: Outbox, shop: Shop) -> None:
    await outbox.relay().run_until_idle()  # it subscribes
    await order(outbox, shop, "cake")
    seen = await outbox.status()
    assert (seen.backlog.pending, seen.relays) == (1, [])


async def test_an_engine_of_the_applications_is_used_for_everything_and_left_open(
    shop: Shop, empty_postgres_url: str
) -> None:
    engine = create_engine(empty_postgres_url)
    outbox = Outbox(engine, contexts=[shop.name])
    assert len(await outbox.migrate()) > 0
    await order(outbox, shop, "cake")
    relay = outbox.relay()
    assert relay.engine is outbox.engine is engine
    await relay.run_until_idle()
    assert (await outbox.status()).backlog.delivered == 1
    await outbox.close()
    assert engine.sync_engine.pool.checkedin() > 0  # type: ignore[attr-defined]  # it is a QueuePool
    await engine.dispose()


async def test_a_module_of_handlers_may_import_the_object(shop: Shop, empty_postgres_url: str) -> None:
    made = f'outbox = Outbox("{empty_postgres_url}", contexts="{shop.name}")'
    shop.write("app", f"from outbox_kernel import Outbox\n\n{made}\n")
    shop.write("handlers", f"from {shop.name}.app import outbox\n{HANDLERS}")
    outbox = shop.room("app").outbox
    await outbox.migrate()
    await order(outbox, shop, "cake")
    await outbox.relay().run_until_idle()
    assert shop.seen == ["cake"]
    await outbox.close()


# --- what makes the handlers -------------------------------------------------------------------------------


async def test_handlers_are_made_by_a_callable_of_the_applications(
    shop: Shop, empty_postgres_url: str
) -> None:
    shop.write("handlers", NEEDY)
    ended: list[str] = []

    @asynccontextmanager
    async def making(kind: Any) -> AsyncIterator[Any]:
        yield kind(shop.room("handlers").Mailer("by hand"))
        ended.append(kind.__name__)

    outbox = Outbox(empty_postgres_url, contexts=shop.name, container=making)
    await outbox.migrate()
    await order(outbox, shop, "cake")
    await outbox.relay().run_until_idle()
    assert shop.seen == ["by hand: cake"]
    assert ended == ["Pack", "Pack"]  # once to see at the start that it can
    await outbox.close()


async def test_a_lagom_container_of_the_applications_is_completed_by_what_it_lacks(
    shop: Shop, empty_postgres_url: str
) -> None:
    shop.write("handlers", NEEDY)
    own = Container()
    outbox = Outbox(empty_postgres_url, contexts=shop.name, container=own)
    await outbox.migrate()
    own[shop.room("handlers").Mailer] = lambda: shop.room("handlers").Mailer("lagom")
    await order(outbox, shop, "cake")
    await outbox.relay().run_until_idle()
    assert shop.seen == ["lagom: cake"]
    container = outbox.container
    assert isinstance(container, Container)
    assert container[AsyncEngine] is outbox.engine
    assert isinstance(container[UnitOfWork], SqlAlchemyUnitOfWork)  # type: ignore[type-abstract]  # a port is what it is asked by
    await outbox.close()


async def test_what_a_handler_commits_by_any_spelling_of_sessions_is_delivered(
    shop: Shop, empty_postgres_url: str, ask: Ask
) -> None:
    """D3: each of these was bound to nothing, and every delivery failed."""
    shop.write("handlers", SPELLINGS)
    await ask("CREATE TABLE effects (n int GENERATED ALWAYS AS IDENTITY)")
    outbox = Outbox(empty_postgres_url, contexts=shop.name)
    await outbox.migrate()
    await order(outbox, shop, "cake")
    await outbox.relay().run_until_idle()
    assert await ask("SELECT DISTINCT status FROM outbox_status") == ["delivered"]
    assert await ask("SELECT count(*) FROM effects") == [3]
    assert await ask("SELECT handler FROM outbox_receipts ORDER BY handler") == ["shop.A", "shop.B", "shop.C"]
    await outbox.close()


SPELLINGS = """
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from outbox_kernel import SqlAlchemyUnitOfWork, UnitOfWork, handles
from {name}.events import Ordered


async def commit(uow: UnitOfWork) -> None:
    async with uow:
        await uow.session.execute(text("INSERT INTO effects DEFAULT VALUES"))
        await uow.commit()


@handles(Ordered, name="shop.A")
class A:
    def __init__(self, uow: UnitOfWork) -> None:
        self.uow = uow

    async def handle(self, event: Ordered) -> None:
        await commit(self.uow)


@handles(Ordered, name="shop.B")
class B:
    def __init__(self, uow: SqlAlchemyUnitOfWork) -> None:
        self.uow = uow

    async def handle(self, event: Ordered) -> None:
        await commit(self.uow)


@handles(Ordered, name="shop.C")
class C:
    def __init__(self, sessions: async_sessionmaker[AsyncSession]) -> None:
        self.sessions = sessions

    async def handle(self, event: Ordered) -> None:
        await commit(SqlAlchemyUnitOfWork(self.sessions))
"""

# --- the past ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "counted"),
    [({"start": "beginning"}, ["cake", "bread", "tea", "milk"]), ({}, ["tea", "milk"])],
    ids=["from the beginning", "from now on"],
)
async def test_a_new_handler_may_begin_at_the_beginning(
    outbox: Outbox, shop: Shop, options: dict[str, Any], counted: list[str]
) -> None:
    """R17, R2: it gets all of the log once, in order; who was there before gets nothing again."""
    seen = []
    await outbox.relay().run_until_idle()
    for what in ("cake", "bread"):
        await order(outbox, shop, what)
    await outbox.relay().run_until_idle()

    @handles(shop.room("events").Ordered, name="shop.count", **options)
    async def count(event: Any) -> None:
        seen.append(event.what)

    for what in ("tea", "milk"):
        await outbox.relay().run_until_idle()
        await order(outbox, shop, what)
    await outbox.relay().run_until_idle()
    assert (shop.seen, seen) == (["cake", "bread", "tea", "milk"], counted)


# --- what it reads and refuses -----------------------------------------------------------------------------


PUBLISHES = """
from outbox_kernel.infrastructure.brokers import Publisher

PUBLISHERS = (Publisher("post", ("shop.*",), exchange="shop"),)
"""


async def test_it_reads_the_settings_of_the_environment(
    shop: Shop, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R15: the lifespan of old ignored them."""
    given = {
        "DATABASE_URL": empty_postgres_url,
        "OUTBOX_CONTEXTS": shop.name,
        "OUTBOX_POLL_INTERVAL": "0.5",
        "OUTBOX_CHANNEL": "bell",
        # Nobody answers there, which does not keep the relay from its start (R14).
        "RABBITMQ_URL": "amqp://guest:guest@127.0.0.1:1/",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    shop.write("topology", PUBLISHES)
    outbox = Outbox()
    await outbox.migrate()
    await order(outbox, shop, "cake")
    relay = outbox.relay()
    await relay.run_until_idle()
    assert (shop.seen, [*relay.paused]) == (["cake"], ["post"])
    assert outbox.relay_settings.poll_interval_seconds == 0.5
    assert outbox.settings.channel == outbox.relay_settings.channel == "bell"
    await outbox.close()


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"OUTBOX_POL_INTERVAL": "1"}, "^OUTBOX_POL_INTERVAL is no setting, .*: write OUTBOX_POLL_INTERVAL"),
        (
            {"OUTBOX_POLL_INTERVAL": "soon"},
            "^OUTBOX_POLL_INTERVAL is 'soon': give a number from 0.01 to 3600",
        ),
        ({"DATABASE_URL": ""}, "^DATABASE_URL is not set: write"),
        ({"DATABASE_URL": "mysql://a/b"}, "^DATABASE_URL begins with mysql://"),
        ({"OUTBOX_LISTEN_URL": "mysql://a/b"}, "^OUTBOX_LISTEN_URL begins with mysql://"),
    ],
)
def test_bad_settings_are_refused_at_once_in_the_sentence_of_the_command(
    environment: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"DATABASE_URL": "postgresql://localhost/x", **environment}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadSetting, match=sentence):
        Outbox()


def test_an_engine_over_another_driver_is_refused_with_what_to_do() -> None:
    engine = create_async_engine("postgresql+psycopg://localhost/x")
    with pytest.raises(EngineRefused, match=r"one of postgresql\+psycopg, .*: give Outbox the URL instead"):
        Outbox(engine)


@pytest.mark.parametrize(
    ("positional", "named", "sentence"),
    [
        (
            [sync_engine("postgresql+psycopg://localhost/x")],
            {},
            "^url_or_engine is of type .*Engine: give it the URL",
        ),
        ([5], {}, "^url_or_engine is of type int: give it the URL"),
        ([sessionmaker()], {}, "^url_or_engine is of type .*sessionmaker: .* let `attach` have the maker"),
        ([], {"settings": {}}, r"^settings is of type dict: give Settings\(…\)"),
        ([], {"relay_settings": 5}, r"^relay_settings is of type int: give RelaySettings\(…\)"),
        ([], {"contexts": 5}, "^contexts is 5: name packages"),
        ([], {"contexts": [5]}, r"^contexts is \[5\]: name packages"),
        ([], {"contexts": "no package"}, "^contexts names 'no package', which is no Python package"),
        ([], {"container": 5}, "^container is of type int: give a lagom container, or what takes a class"),
    ],
)
def test_an_argument_of_another_type_is_refused_and_not_taken_for_one_that_is_not_there(
    positional: list[Any], named: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read as if it were not there, it would mean the database of DATABASE_URL."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://localhost/another")
    with pytest.raises(ArgumentRefused, match=sentence):
        Outbox(*positional, **named)


async def test_contexts_may_be_named_by_anything_that_gives_names(empty_postgres_url: str) -> None:
    for given in ("a.b", ["a.b"], iter(["a.b"]), map(str, ["a.b"]), {"a.b": 1}):
        assert Outbox(empty_postgres_url, contexts=given).settings.contexts == ("a.b",)


async def test_it_delivers_to_nobody_for_no_want_of_an_import(outbox: Outbox, shop: Shop, ask: Ask) -> None:
    (shop.folder / "handlers.py").unlink()
    await order(outbox, shop, "cake")
    for refusing in (outbox.relay, outbox.ready_relay, outbox.delivering().__aenter__):
        with pytest.raises(
            NothingToDeliverTo, match=rf"^there is nothing to .* \(contexts: {shop.name}\): name"
        ):
            await awaited(refusing())
    assert await ask(STATUSES) == ["pending"]


@pytest.mark.parametrize(
    ("room", "text", "error", "sentence"),
    [
        ("handlers", "import nothing_of_that_name", DiscoveryError, "nothing_of_that_name"),
        ("handlers", NEEDY, HandlerNotBuilt, "'shop.Pack' cannot be made by the container"),
        ("wiring", "def register(container):\n    1 / 0", BadContext, "cannot be wired"),
        ("topology", "PUBLISHERS = 1", BadContext, "whose PUBLISHERS is no tuple"),
    ],
)
async def test_what_is_wrong_with_the_application_is_told_before_anything_is_delivered(
    outbox: Outbox,
    shop: Shop,
    room: str,
    text: str,
    error: type[Exception],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop.write(room, text)
    given = Settings(
        database_url=outbox.settings.database_url, contexts=(shop.name,), rabbitmq_url="amqp://127.0.0.1:1/"
    )
    with pytest.raises(error, match=sentence):
        await Outbox(settings=given, relay_settings=RelaySettings()).ready_relay()


async def test_a_context_that_is_not_there_is_named(empty_postgres_url: str) -> None:
    with pytest.raises(BadContext, match="context 'nowhere' is not found from"):
        Outbox(empty_postgres_url, contexts="nowhere").relay()


async def test_a_database_that_is_down_or_not_migrated_is_told(shop: Shop, empty_postgres_url: str) -> None:
    with pytest.raises(DatabaseUnreachable, match="no PostgreSQL answers"):
        await Outbox("postgresql://nobody@127.0.0.1:1/x", contexts=shop.name).ready_relay()
    outbox = Outbox(empty_postgres_url, contexts=shop.name)
    with pytest.raises(SchemaNotMigrated, match="run `outbox migrate`"):
        await outbox.ready_relay()
    await outbox.close()


async def awaited(found: Any) -> Any:
    return await found if hasattr(found, "__await__") else found


def test_sessions_are_typed(outbox: Outbox) -> None:
    session: AsyncSession = outbox.session()
    assert session.sync_session.get_bind() is outbox.engine.sync_engine
